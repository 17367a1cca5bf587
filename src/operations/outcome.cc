#include "operations/outcome.h"

#include "absl/strings/str_format.h"
#include "base/text.h"

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

Outcome Done(std::uint64_t curable_out) {
  return curable_out == 0
             ? Outcome()
             : Outcome{
                   kExitData, "",
                   absl::StrFormat("%d event(s) were left out, since their topics take nothing, or "
                                   "there was no schema for them: create these topics, grant the "
                                   "rights, or register the schemas, then send the events "
                                   "(docs/database.md, \"Send events again\")",
                                   curable_out)};
}

}  // namespace walpost::operations
