#include "outbox/event.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "outbox/column_value.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;

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

absl::Status CheckEventSize(std::size_t bytes, std::size_t bytes_max) {
  return bytes <= bytes_max
             ? absl::OkStatus()
             : UndeliverableError(kEventTooLarge,
                                  absl::StrFormat("it has %u bytes, more than "
                                                  "source.event_bytes_max, %u: correct what writes "
                                                  "it, or raise the limit",
                                                  bytes, bytes_max));
}

std::size_t HexSurplusBytes(std::span<const Value> values,
                            std::span<const pgoutput::Column> columns) {
  std::size_t surplus = 0;
  for (std::size_t i = 0; i < std::min(values.size(), columns.size()); ++i) {
    const std::uint32_t type = columns[i].type_oid;
    const bool may_be_bytea =  // or a domain over it
        type == type_oid::kBytea || type >= type_oid::kFirstUserType;
    if (values[i].kind == Value::Kind::kText && may_be_bytea &&
        values[i].bytes.starts_with("\\x")) {
      surplus += values[i].bytes.size() / 2;
    }
  }
  return surplus;
}

std::vector<Value> WithoutLarge(std::span<const Value> values) {
  constexpr std::size_t kKeptBytesMax = 64 * 1024;
  std::vector<Value> small(values.begin(), values.end());
  for (Value& value : small) {
    if (value.bytes.size() > kKeptBytesMax) {
      value = Value();
    }
  }
  return small;
}

std::string ReasonCodeOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReason);
  return reason ? std::string(*reason) : std::string(kRowInvalid);
}

}  // namespace walpost::outbox
