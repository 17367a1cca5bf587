// KnownRows - the events that come again and are settled, as the rows of walpost.dead_letters show.
// Why: an event that has a row is settled by it, whatever became of it: it was sent from there, was
//   discarded, or waits. A row that parks its key is written only when everything of the key before it is
//   settled. Sent once more by the stream, such events would stand behind later ones of their key.
// Thread: a value.
// Limits: some 50 bytes for each row that was written since the oldest event that is not settled.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/dead_letter.h"
#include "base/source_facts.h"
#include "base/time.h"
#include "envelope/position.h"
#include "outbox/event.h"

namespace walpost::pipeline {

class KnownRows {
 public:
  // `facts`: of this connection. A row of another history says nothing of what is before it: positions are
  // used once more, after a restore.
  void Add(const base::DeadLetter& row, const base::SourceFacts& facts) {
    rows_.insert(base::RowIdOf(row.position, row.event_id));
    const auto position = envelope::Position::Parse(row.position);
    const bool is_ours = position.ok() && position->system_identifier == facts.system_identifier &&
                         position->timeline == facts.TimelineOf(position->commit_lsn);
    if (row.parked && is_ours) {
      Parked& last = parked_[base::ParkedKeyIdOf(row.topic, row.key.value_or(""))];
      if (last.order <= OrderOf(*position)) {
        last = {OrderOf(*position), base::WallTime(std::chrono::milliseconds(row.written_at_ms))};
      }
    }
  }

  // `same_ordinals`: the events of a transaction are numbered as when the rows were written.
  void Start(bool same_ordinals) {
    rows_.clear();
    parked_.clear();
    same_ordinals_ = same_ordinals;
  }

  bool Settle(const envelope::Position& position, base::WallTime commit_time,
              const outbox::Event& event) const {
    if (rows_.empty()) {
      return false;
    }
    if (rows_.contains(base::RowIdOf(position.ToString(), event.id))) {
      return true;
    }
    const auto last =
        event.key ? parked_.find(base::ParkedKeyIdOf(event.topic, *event.key)) : parked_.end();
    if (last == parked_.end() || commit_time >= last->second.written_at) {
      return false;
    }
    return same_ordinals_ ? OrderOf(position) < last->second.order
                          : position.commit_lsn < last->second.order.first;
  }

 private:
  using Order = std::pair<base::Lsn, std::uint32_t>;  // of the commit, and ordinal

  // The last row that parks a key.
  struct Parked {
    Order order;
    base::WallTime written_at;
  };

  static Order OrderOf(const envelope::Position& position) {
    return {position.commit_lsn, position.ordinal};
  }

  bool same_ordinals_ = false;
  absl::flat_hash_set<base::WideHash> rows_;
  absl::flat_hash_map<base::ParkedKeyId, Parked> parked_;
};

}  // namespace walpost::pipeline
