#include "operations/outcome.h"

namespace walpost::operations {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitNoPermission;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
      return kExitSoftware;
    default:
      return kExitConfig;
  }
}

Outcome Failed(const absl::Status& status) {
  return Outcome{ExitCodeOf(status), "", std::string(status.message())};
}

}  // namespace walpost::operations
