#include "outbox/unfit.h"

#include "absl/strings/cord.h"

namespace walpost::outbox {
namespace {

constexpr char kReason[] = "walpost/reason";

}  // namespace

absl::Status UnfitError(std::string_view reason, const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kReason, absl::Cord(std::string(reason)));
  return status;
}

std::string UnfitReason(const absl::Status& status) {
  const auto reason = status.GetPayload(kReason);
  return reason ? std::string(*reason) : std::string(kRowUnfit);
}

}  // namespace walpost::outbox
