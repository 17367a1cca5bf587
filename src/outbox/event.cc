#include "outbox/event.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"

namespace walpost::outbox {
namespace {

constexpr char kReason[] = "walpost/reason";

}  // namespace

absl::Status UndeliverableError(std::string_view reason, const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kReason, absl::Cord(std::string(reason)));
  return status;
}

absl::Status CheckId(std::string_view id) {
  return id.size() <= kIdBytesMax
             ? absl::OkStatus()
             : UndeliverableError(kIdTooLong,
                                  absl::StrFormat("its id has %u bytes, more than the %u that one "
                                                  "may have: correct what writes it",
                                                  id.size(), kIdBytesMax));
}

std::string ReasonCodeOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReason);
  return reason ? std::string(*reason) : std::string(kRowInvalid);
}

}  // namespace walpost::outbox
