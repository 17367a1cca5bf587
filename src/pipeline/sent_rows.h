// SentRows - the next rows of walpost.dead_letters that were sent, and whose event the stream brings again.
// Why: what was delivered before such an event comes again, so it is sent again behind that; and as its row
//   has it, because the stream may have it in a form that was rejected.
// Thread: a value.
// Limits: a piece of the table, of about a mebibyte.
#pragma once

#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dead_letter.h"
#include "envelope/position.h"

namespace walpost::pipeline {

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
