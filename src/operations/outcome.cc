#include "operations/outcome.h"

#include "base/printable.h"

namespace walpost::operations {

std::string Outcome::Output() const { return as_it_is ? output : base::PrintableLines(output); }

std::string Outcome::Error() const { return base::PrintableLines(error); }

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    case absl::StatusCode::kAborted:
      return kExitRetryLater;
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
