#include "outbox/undeliverable.h"

#include "absl/strings/cord.h"

namespace walpost::outbox {
namespace {

constexpr char kReason[] = "walpost/reason";

}  // namespace

absl::Status UndeliverableError(std::string_view reason, const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kReason, absl::Cord(std::string(reason)));
  return status;
}

std::string ReasonCodeOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReason);
  return reason ? std::string(*reason) : std::string(kRowInvalid);
}

}  // namespace walpost::outbox
