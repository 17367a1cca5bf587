// KnownRows - the rows of walpost.dead_letters whose event the stream brings again.
// Why: an event that has a row is settled by the row, whatever became of it: it was sent from there,
//   was discarded, or waits. Sent once more by the stream, it would stand behind later events of its
//   key.
// Thread: a value.
// Limits: 16 bytes for each row that was written since the oldest event that is not settled.
#pragma once

#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "base/dead_letter.h"
#include "envelope/position.h"

namespace walpost::pipeline {

class KnownRows {
 public:
  void Add(const base::DeadLetter& row) { rows_.insert(base::RowIdOf(row.position, row.event_id)); }

  void Clear() { rows_.clear(); }

  // The event has one.
  bool Has(const envelope::Position& position, std::string_view event_id) const {
    return !rows_.empty() && rows_.contains(base::RowIdOf(position.ToString(), event_id));
  }

 private:
  absl::flat_hash_set<base::WideHash> rows_;
};

}  // namespace walpost::pipeline
