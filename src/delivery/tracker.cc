#include "delivery/tracker.h"

#include <glog/logging.h>

#include <algorithm>

namespace walpost::delivery {

void Tracker::BeginTransaction(base::Lsn commit_lsn) {
  CHECK(!in_transaction_);
  in_transaction_ = true;
  transaction_commit_lsn_ = commit_lsn;
  transaction_first_ = next_sequence();
}

Sequence Tracker::Add(const envelope::Record& record, std::uint32_t ordinal,
                      base::WallTime commit_time, std::uint32_t table, Form form) {
  CHECK(in_transaction_);
  const Sequence sequence = next_sequence();
  Entry entry;
  entry.record = record;
  entry.commit_lsn = transaction_commit_lsn_;
  entry.ordinal = ordinal;
  entry.table = table;
  entry.commit_time = commit_time;
  entry.bytes = record.AccountedBytes();
  entry.form = form;
  in_flight_bytes_ += entry.bytes;
  ++in_flight_events_;
  entries_.PushBack(entry);
  return sequence;
}

void Tracker::CommitTransaction(base::Lsn end_lsn) {
  CHECK(in_transaction_);
  in_transaction_ = false;
  PushCheckpoint(next_sequence(), end_lsn);
  Advance();
}

void Tracker::ObservePosition(base::Lsn wal_end) {
  if (in_transaction_) {
    PushCheckpoint(transaction_first_, std::min(wal_end, transaction_commit_lsn_));
  } else {
    PushCheckpoint(next_sequence(), wal_end);
  }
  Advance();
}

void Tracker::SetForm(Sequence sequence, Form form) { Unsettled(sequence)->form = form; }

void Tracker::Settle(Sequence sequence) {
  Entry* const entry = Unsettled(sequence);
  entry->settled = true;
  in_flight_bytes_ -= entry->bytes;
  --in_flight_events_;
  arena_.Release(entry->record.block);
  if (sequence != first_sequence_) {
    return;
  }
  while (!entries_.empty() && entries_.front().settled) {
    entries_.PopFront();
    ++first_sequence_;
  }
  Advance();
}

std::size_t Tracker::DiscardAll() {
  const std::size_t discarded = in_flight_events_;
  for (; !entries_.empty(); entries_.PopFront(), ++first_sequence_) {
    if (!entries_.front().settled) {
      arena_.Release(entries_.front().record.block);
    }
  }
  while (!checkpoints_.empty()) {
    checkpoints_.PopFront();
  }
  in_flight_events_ = 0;
  in_flight_bytes_ = 0;
  in_transaction_ = false;
  return discarded;
}

void Tracker::ForgetPositions() {
  CHECK(empty());
  DiscardAll();
  safe_lsn_ = base::Lsn();
}

const Tracker::Entry& Tracker::entry(Sequence sequence) const {
  CHECK_GE(sequence, first_sequence_);
  CHECK_LT(sequence, next_sequence());
  return entries_[sequence - first_sequence_];
}

Tracker::Entry* Tracker::Unsettled(Sequence sequence) {
  CHECK_GE(sequence, first_sequence_);
  CHECK_LT(sequence, next_sequence());
  Entry& entry = entries_[sequence - first_sequence_];
  CHECK(!entry.settled);
  return &entry;
}

void Tracker::PushCheckpoint(Sequence sequence, base::Lsn lsn) {
  // Positions repeat and go back after a reconnect; what is already safe or queued for the same
  // events adds nothing.
  if (lsn <= safe_lsn_) {
    return;
  }
  if (!checkpoints_.empty()) {
    Checkpoint& newest = checkpoints_.back();
    CHECK_GE(sequence, newest.sequence);
    if (lsn <= newest.lsn) {
      return;
    }
    if (newest.sequence == sequence) {
      newest.lsn = lsn;
      return;
    }
  }
  checkpoints_.PushBack(Checkpoint{sequence, lsn});
}

void Tracker::Advance() {
  while (!checkpoints_.empty() && checkpoints_.front().sequence <= first_sequence_) {
    CHECK_GT(checkpoints_.front().lsn, safe_lsn_);
    safe_lsn_ = checkpoints_.front().lsn;
    checkpoints_.PopFront();
  }
  // G5, looked at independently of how the queue came to its answer.
  if (!entries_.empty()) {
    CHECK_LE(safe_lsn_, entries_.front().commit_lsn) << "would confirm past an undelivered event";
  }
}

void PartitionGate::OnSent(base::MonotonicTime now, std::chrono::milliseconds known_for) {
  CHECK(MaySend());
  if (outstanding_++ == 0) {
    alone_ = !known_ || now - known_at_ >= known_for;
  }
}

bool PartitionGate::OnAcknowledged(base::MonotonicTime now, std::int64_t offset) {
  CHECK_GT(outstanding_, 0U);
  --outstanding_;
  if (of_before_ > 0) {
    --of_before_;
  } else {
    alone_ = false;
    known_ = true;
    known_at_ = now;
  }
  if (offset < 0) {
    return false;
  }
  const bool went_back = offset < next_offset_;
  next_offset_ = offset + 1;
  return went_back;
}

void PartitionGate::OnFailed() {
  CHECK_GT(outstanding_, 0U);
  --outstanding_;
  of_before_ = std::min(of_before_, outstanding_);
}

void PartitionGate::OnMadeAnew() {
  known_ = false;
  alone_ = true;
  of_before_ = outstanding_;
}

}  // namespace walpost::delivery
