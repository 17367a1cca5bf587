// KnownRows - the rows of walpost.dead_letters whose event the stream brings again.
// Why: an event whose row waits, or was discarded, is settled by the row. Sent by the stream, it would be in
//   its topic although it was discarded, or besides its row. Rows of parked keys that were sent are none
//   of these, but SentRows.
// Thread: a value.
// Limits: some 20 bytes for each such row that was written since the oldest event that is not settled.
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

  bool Has(const envelope::Position& position, std::string_view event_id) const {
    return !rows_.empty() && rows_.contains(base::RowIdOf(position.ToString(), event_id));
  }

 private:
  absl::flat_hash_set<base::WideHash> rows_;
};

}  // namespace walpost::pipeline
