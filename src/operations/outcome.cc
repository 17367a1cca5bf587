#include "operations/outcome.h"

namespace walpost::operations {

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 69;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return 77;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
      return 70;
    default:
      return 78;
  }
}

Outcome Failed(const absl::Status& status) {
  return Outcome{ExitCodeOf(status), "", std::string(status.message())};
}

}  // namespace walpost::operations
