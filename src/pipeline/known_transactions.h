// KnownTransactions - by which transactions a history is recognised: of those with events of ours
// that are delivered the last one without a replication origin, and all later ones that were taken.
// Why: (system identifier, timeline, LSN) does not name a history, because a server that was set
//   back repeats all three. A committed transaction does: its commit LSN, xid and commit time
//   together. With an origin it does not: the time is the origin's, and comes again when the same
//   is applied again. So each connection asks from the first known transaction on, and what comes
//   must be the known ones. Anything else is another history, and streaming on would lose or repeat
//   rows without a word.
// How: Expect() with each connection, then OnBegin and OnPosition with what arrives.
// Thread: loop thread.
// Errors: a Halt before anything of the other history is sent or confirmed.
// Source: docs/design.md, "Histories".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/lsn.h"
#include "base/source_facts.h"
#include "base/time.h"
#include "delivery/tracker.h"
#include "pipeline/halt.h"

namespace walpost::pipeline {

class KnownTransactions {
 public:
  // What OnBegin says of a transaction of which nothing was taken, and of one that was taken whole.
  static constexpr std::int64_t kNothing = -1;
  static constexpr std::int64_t kWhole = std::numeric_limits<std::int64_t>::max();

  // The last event taken of a transaction.
  struct Taken {
    std::int64_t ordinal = kNothing;
    base::Lsn lsn;  // of its own record
  };

  // Delivered before this process began, as progress has them. `end` is at least their end.
  void Remember(const std::vector<base::CommittedTransaction>& delivered, base::Lsn end);

  void Forget();

  // Where the next connection has to begin, so that the first known transaction comes again; 0/0 =
  // at the slot's position. From here on until Expect() nothing is forgotten.
  base::Lsn TakeStart();

  // A new connection, on which the server sends what commits at `start` or later.
  void Expect(base::Lsn start);

  // Everything that must come again on this connection has come.
  bool verified() const { return next_ == entries_.size(); }

  std::optional<Halt> OnBegin(const base::CommittedTransaction& begun);

  // Everything that commits before `position` has been sent on this connection.
  std::optional<Halt> OnPosition(base::Lsn position) const {
    return verified() || position <= entries_[next_].transaction.commit_lsn
               ? std::nullopt
               : std::optional(Missing(position));
  }

  // Up to which event the transaction that began last was taken before.
  const Taken& taken_through() const { return taken_through_; }

  // Of the open transaction an event was taken: the first one of it, or a later one.
  void TakenFirst(const base::CommittedTransaction& open, bool has_origin, const Taken& event) {
    entries_.PushBack(Entry{open, base::Lsn(), has_origin});
    next_ = entries_.size();
    newest_ = event;
  }

  void TakenNext(const Taken& event) { newest_ = event; }

  // A transaction was read to its end.
  void OnCommit(base::Lsn commit_lsn, base::Lsn end);

  // At `at`, by its clock, the server had sent everything that was read, over all connections.
  void Passed(base::WallTime at) { passed_at_ = std::max(passed_at_, at); }

  base::WallTime passed_at() const { return passed_at_; }

  // Everything that ends at or before `safe` is delivered.
  void Settle(base::Lsn safe);

  // Of those that end at or before `position`, what progress remembers.
  std::vector<base::CommittedTransaction> LastBefore(base::Lsn position) const;

  // Besides those that progress remembers: these are always kept.
  std::size_t retained_bytes() const {
    const std::size_t kept = std::max<std::size_t>(delivered_.size - delivered_.first, 1);
    return entries_.size() <= kept ? 0 : (entries_.size() - kept) * sizeof(Entry);
  }

  // The highest commit LSN; 0/0 = none.
  base::Lsn newest() const {
    return entries_.empty() ? base::Lsn() : entries_[entries_.size() - 1].transaction.commit_lsn;
  }

 private:
  struct Entry {
    base::CommittedTransaction transaction;
    base::Lsn end;  // 0/0 = its commit was not read yet; the newest one only
    bool has_origin = false;

    bool EndsBy(base::Lsn position) const { return end.valid() && end <= position; }
  };

  // Of those that end at or before a position: the first that is needed, and how many there are.
  struct Delivered {
    std::size_t first = 0;
    std::size_t size = 0;

    void Add(const Entry& next);
  };

  Halt Missing(base::Lsn position) const;

  delivery::Ring<Entry> entries_;  // ascending
  std::size_t next_ = 0;           // the first one that has yet to come on this connection
  Delivered delivered_;
  Taken newest_;
  Taken taken_through_;
  base::WallTime passed_at_;
};

// For what arrives where this history has nothing of ours.
Halt OtherHistory(const std::string& what);

}  // namespace walpost::pipeline
