// Records of dead letters: for the dead-letter topic, which people watch and nothing reads back, and
// as they are sent again.
// Why: an event keeps its own key, value and headers; what is known about it stands in headers of
//   ours behind its own, as text for any reader.
// Thread: free functions.
// Source: docs/dead-letters.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dead_letter.h"
#include "envelope/record.h"

namespace walpost::envelope {

// Reason of a dead letter whose value is no record's but the content of a logical message.
inline constexpr std::string_view kMessageMalformed = "message_malformed";

// A key that orders nothing is left out of a truncated dead letter when it is larger.
inline constexpr std::size_t kTruncatedKeyBytesMax = 16 * 1024;

// Reason of a parked event with which nothing is wrong: an earlier event of its key is parked.
inline constexpr std::string_view kKeyParked = "key_parked";

// What a record of the dead-letter topic says: name and text.
std::vector<std::pair<std::string_view, std::string>> DescribeForTopic(const base::DeadLetter& row,
                                                                       std::string_view pipeline);

// Fills in key, value and headers, or what is left of them when they are larger than such a row may be. The
// value of a row that is truncated already is what it keeps instead of a record.
void TakeRecord(const Record& record, base::DeadLetter* row);
// The same, up to `bytes_max`.
void TakeRecord(const Record& record, base::DeadLetter* row, std::size_t bytes_max);

// The headers of an event that is sent again. They are marked: a reader that drops by position does not
// drop it, and sees that it is a repeat. Views of what is given.
std::vector<RecordHeader> RedeliveryHeaders(std::span<const RecordHeader> event_headers,
                                            std::string_view kind, std::string_view position);
std::vector<RecordHeader> RedeliveryHeaders(const base::DeadLetter& row, std::string_view kind);

// The event's own.
std::vector<RecordHeader> HeadersOf(const base::DeadLetter& row);

}  // namespace walpost::envelope
