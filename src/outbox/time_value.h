// Dates and times from both forms the server may send, as counts since 1970.
// Why: the stream is binary from PostgreSQL 14 on, and what verbs read is text. One value must mean
//   the same in both, or a row that was delivered is no record for `audit` and `replay`.
// Thread: free functions.
// Errors: kInvalidArgument for infinities, for what no count of microseconds reaches, and for text
//   that is not in ISO form; never the value itself.
// Source: PostgreSQL source, the *_send and *_out functions of each type; EncodeDateTime writes a
//   year before 1 as 44 BC.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

// date: days since 1970.
absl::StatusOr<std::int64_t> ToUnixDays(const pgoutput::Value& value);

// time: microseconds since midnight; 24:00 is a time.
absl::StatusOr<std::int64_t> ToDayMicros(const pgoutput::Value& value);

// timestamp, as in UTC, and timestamptz.
absl::StatusOr<base::WallTime> ToInstant(const pgoutput::Value& value);

}  // namespace walpost::outbox
