// Event - one outbox row, by meaning instead of by column.
// Thread: a value.
// Lifetime: every view points into the frame that was decoded or into the TableMapper's scratch,
//   and ends with the mapper's next Map call.
// Units: text fields are UTF-8 unless the database is SQL_ASCII; payload is raw bytes, exactly as
//   stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/dead_letter.h"
#include "base/time.h"

namespace walpost::outbox {

// A row or message with more headers is no event: each takes memory beside its bytes.
constexpr std::size_t kHeadersMax = 1'000;

struct Header {
  std::string_view name;
  std::string_view value;
  bool null = false;  // a header without a value, which is not the empty one
};

// What the payload's column says about it.
enum class PayloadForm { kBytes, kText, kJson };

struct Event {
  std::string_view id;
  std::optional<std::string_view> key;  // NULL stays null: no key is not the empty key
  std::string_view aggregate_type;
  std::string_view type;
  std::optional<std::string_view> payload;
  PayloadForm payload_form = PayloadForm::kBytes;
  std::string_view content_type;  // empty = not given
  std::string_view schema_name;
  std::string_view traceparent;
  std::string_view tracestate;
  std::string_view baggage;
  std::string_view tracingspancontext;  // as Debezium's outbox extensions write it
  std::optional<base::WallTime> occurred_at;
  std::optional<base::WallTime> timestamp;  // of the record, instead of the commit's
  std::string_view topic;                   // already expanded and checked
  std::int32_t partition = -1;              // -1 = by key
  std::span<const Header> headers;          // from the headers column, in its order
  std::span<const Header> record_headers;   // from TableOptions::record_headers
  std::string_view schema;
  std::string_view table;
};

// UndeliverableError - a row that becomes no record: the message for a person, and the reason as a
// word that does not change.
// Why: operators filter dead letters by it, and policies later may.
// Thread: free functions.
// Source: docs/dead-letters.md, walpost-dlq-reason.
inline constexpr std::string_view kRowInvalid = "row_invalid";
inline constexpr std::string_view kIdTooLong = "id_too_long";
inline constexpr std::string_view kEventTooLarge = "event_too_large";
inline constexpr std::string_view kTopicNotAllowed = "topic_not_allowed";
inline constexpr std::string_view kHeaderInvalid = "header_invalid";
inline constexpr std::string_view kPayloadInvalid = "payload_invalid";
inline constexpr std::string_view kCloudEventInvalid = "cloudevent_invalid";
inline constexpr std::string_view kSchemaNameInvalid = "schema_name_invalid";

// Repeats and dead letters are recognized by the id, and of a longer one a dead letter keeps the
// beginning alone.
inline constexpr std::size_t kIdBytesMax = base::DeadLetter::kTextBytesMax;

// kInvalidArgument.
absl::Status UndeliverableError(std::string_view reason, const std::string& message);

// kIdTooLong.
absl::Status CheckId(std::string_view id);

// kRowInvalid for a status that names none.
std::string ReasonCodeOf(const absl::Status& status);

}  // namespace walpost::outbox
