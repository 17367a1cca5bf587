// Position - the identity of an event in the stream: (system identifier, timeline, commit_lsn,
// ordinal in transaction).
// Why: the LSN of a row is neither unique nor ordered and xids wrap; this is the same on every
//   redelivery. The ordinal counts the transaction's events from 0: rows of our outboxes and
//   messages of our prefixes. Which others the server sends depends on more than its log.
// Units: text form is `<system identifier, 16 hex>-<timeline, 8 hex>-<commit_lsn, 16 hex>-<ordinal,
//   8 hex>`, lower case, 51 characters, which sorts as text in stream order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dead_letter.h"
#include "base/lsn.h"
#include "base/source_facts.h"
#include "base/time.h"
#include "envelope/record.h"

namespace walpost::envelope {

struct Position {
  std::uint64_t system_identifier = 0;
  std::uint32_t timeline = 0;
  base::Lsn commit_lsn;
  std::uint32_t ordinal = 0;

  static constexpr std::size_t kTextSize = 16 + 1 + 8 + 1 + 16 + 1 + 8;

  // Exactly kTextSize characters, no terminator.
  void Format(char* text) const;
  std::string ToString() const;
  static absl::StatusOr<Position> Parse(std::string_view text);

  friend auto operator<=>(const Position&, const Position&) = default;
};

// What the transaction adds to each of its events.
struct TransactionInfo {
  base::Xid xid;
  base::WallTime commit_time;
};

// EncodeProgress, DecodeProgress - remembered progress as the bytes of a record's value.
// Why: `run`, the verbs and operators' own tools read the same records; the message is
//   walpost.v1.Progress.
// Thread: any.
// Errors: kDataLoss for bytes that are no such message, or say what no walpost writes;
//   kUnimplemented for a format this version does not know.
std::string EncodeProgress(const base::Progress& progress);
absl::StatusOr<base::Progress> DecodeProgress(std::string_view value);

// Also of a format that this version does not know: its fields keep their meaning.
std::uint64_t EpochOf(std::string_view value);

// Records of dead letters: for the dead-letter topic, which people watch and nothing reads back,
// and as they are sent again.
// Why: an event keeps its own key, value and headers; what is known about it stands in headers of
//   ours behind its own, as text for any reader.
// Thread: free functions.
// Source: docs/dead-letters.md.

// Reason of a dead letter whose value is no record's but the content of a logical message.
inline constexpr std::string_view kMessageMalformed = "message_malformed";

// A key that orders nothing is left out of a truncated dead letter when it is larger.
inline constexpr std::size_t kTruncatedKeyBytesMax = 16 * 1024;

// Reason of a parked event with which nothing is wrong: an earlier event of its key is parked.
inline constexpr std::string_view kKeyParked = "key_parked";

// What a record of the dead-letter topic says: name and text.
std::vector<std::pair<std::string_view, std::string>> DescribeForTopic(const base::DeadLetter& row,
                                                                       std::string_view pipeline);

// Fills in key, value and headers, or what is left of them when they are larger than such a row may
// be. The value of a row that is truncated already is what it keeps instead of a record.
void TakeRecord(const Record& record, base::DeadLetter* row);
// The same, up to `bytes_max`.
void TakeRecord(const Record& record, base::DeadLetter* row, std::size_t bytes_max);

// Marks what is sent again: a reader that drops by position does not drop it, and sees that it is a
// repeat. Whatever its value is.
inline constexpr std::string_view kRedelivery = "walpost-redelivery";

// The headers of an event that is sent again, marked. Views of what is given.
std::vector<RecordHeader> RedeliveryHeaders(std::span<const RecordHeader> event_headers,
                                            std::string_view kind, std::string_view position);
std::vector<RecordHeader> RedeliveryHeaders(const base::DeadLetter& row, std::string_view kind);

// The event's own.
std::vector<RecordHeader> HeadersOf(const base::DeadLetter& row);

}  // namespace walpost::envelope
