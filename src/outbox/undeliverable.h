// UndeliverableError - a row that becomes no record: the message for a person, and the reason as a word
// that does not change.
// Why: operators filter dead letters by it, and policies later may.
// Thread: free functions.
// Source: docs/dead-letters.md, walpost-dlq-reason.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/dead_letter.h"

namespace walpost::outbox {

inline constexpr std::string_view kRowInvalid = "row_invalid";
inline constexpr std::string_view kIdTooLong = "id_too_long";
inline constexpr std::string_view kEventTooLarge = "event_too_large";
inline constexpr std::string_view kTopicNotAllowed = "topic_not_allowed";
inline constexpr std::string_view kHeaderInvalid = "header_invalid";
inline constexpr std::string_view kPayloadInvalid = "payload_invalid";
inline constexpr std::string_view kCloudEventInvalid = "cloudevent_invalid";
inline constexpr std::string_view kSchemaNameInvalid = "schema_name_invalid";

// Repeats and dead letters are recognized by the id, and of a longer one a dead letter keeps the beginning alone.
inline constexpr std::size_t kIdBytesMax = base::DeadLetter::kTextBytesMax;

// kInvalidArgument.
absl::Status UndeliverableError(std::string_view reason, const std::string& message);

// kIdTooLong.
absl::Status CheckId(std::string_view id);

// kRowInvalid for a status that names none.
std::string ReasonCodeOf(const absl::Status& status);

}  // namespace walpost::outbox
