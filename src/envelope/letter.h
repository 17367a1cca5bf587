// Letter - a record of the dead-letter topic, which is a log: events that could not be delivered,
// events that wait behind such a one, commands of an operator, and what was decided.
// Why: an event keeps its own key, value and headers, so that it can be sent again as it is; what is
//   known about it stands in headers of ours behind its own, as text for any reader.
// Thread: values.
// Units/limits: id, type, detail and topic are cut at kTextMax bytes in the headers.
// Errors: ParseLetter: kDataLoss for a record of ours that cannot be read.
// Source: docs/dead-letters.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/chunk_arena.h"
#include "envelope/record.h"

namespace walpost::envelope {

enum class LetterKind {
  kLetter,    // an event that could not be delivered; later events of its key went on
  kParked,    // the same, or an event behind it: later events of its key follow it here
  kCommand,   // what an operator wants done with a parked key; `run` does it
  kDecision,  // what was done
};

enum class LetterAction {
  kNone,
  kRetry,      // command: send again
  kDiscard,    // command: never send
  kDelivered,  // decision: was sent again and acknowledged
  kDiscarded,  // decision: will not be sent
  kFailed,     // answer to a command: nothing was decided, `detail` says why
};

struct Letter {
  static constexpr std::size_t kTextMax = 1024;

  LetterKind kind = LetterKind::kLetter;
  LetterAction action = LetterAction::kNone;
  std::string pipeline;
  std::string topic;  // that the event was meant for; empty = could not be told
  std::string table;  // schema.table
  std::string id;     // of the event
  std::string type;   // of the event
  std::string
      position;         // of the event, as Position::ToString; a decision's or command's only event
  std::string through;  // of a decision: it is about every event of the key up to this position
  std::string reason;   // stable code, e.g. record_too_large
  std::string schema;   // what the value, which is here without it, needs of a Schema Registry
  std::string detail;
  std::uint32_t attempts = 0;
  std::int32_t partition = -1;                  // that the row asked for; -1 = by key
  std::int64_t timestamp_ms = 0;                // of the record
  std::optional<std::uint64_t> left_out_bytes;  // a stub: value and headers, so large, are not here
  std::optional<std::int64_t> answers;          // offset of the command that this is the answer to
};

// Reason of a letter whose value is no record's but the content of a logical message.
inline constexpr std::string_view kMessageMalformed = "message_malformed";

// Which pipeline's record it is: readers of a shared log look at this first.
inline constexpr std::string_view kLetterPipelineHeader = "walpost-dlq-pipeline";

// One record of the log, with bytes of its own.
struct LoggedLetter {
  std::int64_t offset = 0;
  Letter letter;
  std::optional<std::string> key;
  // Of the event, where they were asked for.
  std::optional<std::string> value;
  std::vector<std::pair<std::string, std::string>> headers;
};

// How a stub keeps the key: always, where order depends on it; else up to this size.
inline constexpr std::size_t kStubKeyBytesMax = 16 * 1024;

// A record for `topic`, which must outlive it, in a block of its own. `event` gives key, value and
// headers; a stub takes the key only.
Record EncodeLetter(const Letter& letter, std::string_view topic, const Record& event,
                    base::ChunkArena* arena);

// Nothing for a record that is not ours.
absl::StatusOr<std::optional<Letter>> ParseLetter(std::span<const RecordHeader> headers);

// The event's own headers: those before ours.
std::span<const RecordHeader> EventHeaders(std::span<const RecordHeader> headers);

// The headers of an event that is sent again: marked, so that a reader that drops by position does
// not drop it, and can tell.
std::vector<RecordHeader> RedeliveryHeaders(std::span<const RecordHeader> event_headers,
                                            std::string_view kind, std::string_view position);

std::string_view LetterKindName(LetterKind kind);
std::string_view LetterActionName(LetterAction action);

}  // namespace walpost::envelope
