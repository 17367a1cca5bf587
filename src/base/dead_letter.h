// DeadLetter - a row of walpost.dead_letters: an event that could not be delivered, or that waits
// behind such a one, with the whole record and what was decided about it.
// Why here: postgres reads and writes it, pipeline decides by it, verbs show it; none of them may
//   use another.
// Thread: a value with bytes of its own.
// Source: docs/dead-letters.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace walpost::base {

struct DeadLetter {
  // Longer texts are cut.
  static constexpr std::size_t kTextBytesMax = 1024;
  // The row of a larger record is truncated: it has neither value nor headers. Those are in the
  // event's own row, where they may have to be corrected first. A row that became no record is kept
  // up to here.
  static constexpr std::size_t kRecordBytesMax = std::size_t{8} << 20U;
  // The same for a record that may be nowhere else: nothing is wrong with it and its row may be
  // deleted by now, or it is a message's. The server takes half a gigabyte at most.
  static constexpr std::size_t kOnlyRecordBytesMax = std::size_t{256} << 20U;

  // A longer one is never parked: at each connect walpost reads all that are.
  static constexpr std::size_t kParkedKeyBytesMax = std::size_t{16} << 10U;

  enum class Decision : std::uint8_t { kNone, kRetry, kDiscard };

  struct Header {
    std::string name;
    std::optional<std::string> value;

    friend bool operator==(const Header&, const Header&) = default;
  };

  std::int64_t seq = 0;  // in the order in which they were written; 0 = not yet
  std::string position;  // of the event, as envelope::Position::ToString
  std::string event_id;  // empty = not known
  // Where it stands in the stream: its position; of one that a verb wrote, that of the last row of
  // the key and a plus sign, right behind it; empty = before all, because it was taken over from
  // another cluster.
  std::string place;
  std::string event_type;
  std::string source;              // schema.table, or what messages are called
  std::string topic;               // that the event was meant for; empty = not known
  std::int32_t partition = -1;     // that the row asked for; -1 = by key
  std::int64_t event_time_ms = 0;  // of the record
  std::optional<std::string> key;
  std::optional<std::string> value;
  std::vector<Header> headers;
  std::string schema;  // what the value, which is here without it, needs of a Schema Registry
  std::string reason;  // stable code, e.g. record_too_large
  std::string detail;
  std::uint32_t attempts = 0;
  bool parked = false;  // later events of its key follow it here
  // It has no record, of which value and headers, or the row, had so many bytes. Its value, if any,
  // is the row that became none, as outbox::KeptRow.
  std::optional<std::uint64_t> truncated_bytes;

  // Of a row that was read.
  std::int64_t written_at_ms = 0;
  std::optional<std::uint64_t> value_bytes;
  Decision decision = Decision::kNone;
  bool taken_back = false;  // there was a decision, and is none any more
  bool of_key = false;      // the decision is about every parked event of the key
  std::string send_to;      // of a retry: another topic; empty = its own
  std::string decided_by;
  bool closed = false;   // not sent any more, and kept to be looked at
  bool foreign = false;  // of another cluster: came with a dump, and does not count

  bool retry() const { return decision == Decision::kRetry; }

  bool discard() const { return decision == Decision::kDiscard; }

  // To its own topic: what follows it is sent behind it, also when its event comes again.
  bool parked_and_sent() const { return parked && closed && !discard() && send_to.empty(); }

  // In memory, about.
  std::size_t Bytes() const {
    std::size_t bytes = 512 + value_bytes.value_or(0) + key.value_or("").size() + schema.size();
    for (const Header& header : headers) {
      bytes += header.name.size() + header.value.value_or("").size();
    }
    return bytes;
  }

  // Also of one that was read without its record.
  bool keeps_row() const { return truncated_bytes && (value || value_bytes); }
};

// What the table has of an event that comes again.
enum class DeadLetterState {
  kOpen,
  kClosed,  // or its row does not park its key, though it was to
  kNone     // it was only looked for, and is not there
};

// One of which later events must not overtake what is parked.
struct ParkedKey {
  std::int64_t seq = 0;  // of a row of it
  std::string place;     // of that row
  std::string topic;
  std::string key;
};

// Of an event and of its row, where the id is cut and what the database has no character for is a
// question mark.
inline WideHash RowIdOf(std::string_view position, std::string_view event_id) {
  constexpr std::size_t kComparedBytesMax = 1'000;
  std::string id(event_id.substr(0, kComparedBytesMax));
  std::replace_if(
      id.begin(), id.end(),
      [](char c) { return c == '\0' || static_cast<unsigned char>(c) >= 0x80U; }, '?');
  return WideHashOf(position, id);
}

// A parked key of a topic, in this process: a key may be of any size, and many may be parked.
using ParkedKeyId = WideHash;

inline ParkedKeyId ParkedKeyIdOf(std::string_view topic, std::string_view key) {
  return WideHashOf(topic, key);
}

}  // namespace walpost::base
