// KnownRows - the rows of walpost.dead_letters whose event the stream brings again.
// Why: an event whose row waits, or was discarded, is settled by the row. Sent by the stream, it
//   would be in its topic although it was discarded, or besides its row. Rows of parked keys that
//   were sent are none of these, but SentRows.
// Thread: a value.
// Limits: some 20 bytes for each such row that was written since the oldest event that is not
// settled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/dead_letter.h"
#include "delivery/sink.h"
#include "envelope/control_records.h"

namespace walpost::pipeline {

// ParkedKey, WaitingRow - a key of which no event may overtake those in walpost.dead_letters, and
// an event that is to become a row there.
// Why: internal to DeadLetters.
// Thread: values.

// Of base::DeadLetter::place. None: before all.
inline std::optional<envelope::Position> PositionOfPlace(std::string_view place) {
  auto position = envelope::Position::Parse(place.substr(0, envelope::Position::kTextSize));
  if (!position.ok()) {
    return std::nullopt;
  }
  position->ordinal += place.size() > envelope::Position::kTextSize ? 1 : 0;
  return *position;
}

struct ParkedKey {
  static constexpr delivery::Sequence kNone = UINT64_MAX;

  delivery::Sequence first_sequence = kNone;  // of those that this process read and parked
  // Of the first of its rows that were open when it was read from the table. Zero: all follow.
  std::optional<envelope::Position> open_from;
  // Events of its topic before here were on their way when it was parked.
  delivery::Sequence settle_below = 0;
  mutable delivery::Sequence settled_to = 0;  // below here they are known to be
  mutable delivery::Sequence parked_to =
      0;                    // below here those of the key wait to be rows, or are settled
  std::size_t waiting = 0;  // events of it that are to be written
  bool open = false;        // the table has rows of it
  bool seen = false;        // since the connection was made
};

struct WaitingRow {
  std::optional<base::ParkedKeyId> key;  // that it is parked with
  bool follows = false;                  // nothing is known to be wrong with it
};

class KnownRows {
 public:
  void Add(const base::DeadLetter& row) { rows_.insert(base::RowIdOf(row.position, row.event_id)); }

  void Clear() { rows_.clear(); }

  bool Has(const envelope::Position& position, std::string_view event_id) const {
    return !rows_.empty() && rows_.contains(base::RowIdOf(position.ToString(), event_id));
  }

 private:
  absl::flat_hash_set<base::WideHash> rows_;
};

// SentRows - the next rows of walpost.dead_letters that were sent, and whose event the stream
// brings again.
// Why: what was delivered before such an event comes again, so it is sent again behind that; and as
//   its row has it, because the stream may have it in a form that was rejected.
// Limits: a piece of the table, of about a mebibyte.

// What the table has of an event that the stream brings.
enum class Repeat {
  kNone,     // nothing: it is new, or has no row
  kSettled,  // its row waits, was discarded, or was sent and has no order
  kSent,     // it was sent as one of a parked key, and is sent again
};

class SentRows {
 public:
  // There are none.
  void Clear() {
    rows_.clear();
    at_end_ = true;
  }

  // Those from this transaction on are to be read.
  void ReadFrom(envelope::Position place) {
    rows_.clear();
    place.timeline = place.ordinal = 0;  // before all of it
    read_through_ = place;
    at_end_ = false;
  }

  // Nothing of the stream is to be read before more of the table is.
  bool must_read(const envelope::Position& place) const {
    return !at_end_ && (rows_.empty() || rows_.back().first < place);
  }

  const envelope::Position& read_through() const { return read_through_; }

  void Add(std::vector<base::DeadLetter> rows, bool at_end) {
    at_end_ = at_end;
    for (base::DeadLetter& row : rows) {
      if (const auto at = envelope::Position::Parse(row.position); at.ok()) {
        read_through_ = *at;
        rows_.emplace_back(*at, std::move(row));
      }
    }
  }

  // Where the stream is: what is before has come, or does not come.
  void Pass(const envelope::Position& place) {
    while (!rows_.empty() && rows_.front().first < place) {
      rows_.pop_front();
    }
  }

  // Of the event there, when the stream is there; null = it has none.
  const base::DeadLetter* Find(const envelope::Position& at, std::string_view event_id) const {
    if (rows_.empty() || rows_.front().first != at) {
      return nullptr;
    }
    const base::DeadLetter& row = rows_.front().second;
    return base::RowIdOf({}, event_id) == base::RowIdOf({}, row.event_id) ? &row : nullptr;
  }

 private:
  std::deque<std::pair<envelope::Position, base::DeadLetter>> rows_;
  envelope::Position read_through_;
  bool at_end_ = true;
};

}  // namespace walpost::pipeline
