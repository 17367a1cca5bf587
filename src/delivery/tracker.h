// Tracker - what is in flight, and which LSN is therefore safe to confirm (guarantee G5). No
// policy.
// Why: delivery reports come out of order across partitions, transactions may be empty, and the
//   server also reports positions without events (keepalives). One queue holds them all: an event
//   is settled when Kafka has it or a policy decided it; a position becomes safe when every event
//   received before it is settled. "Idle" is not a flag but an empty queue, which is where others
//   lost data.
// Thread: one owner.
// Lifetime: entry() references end with the next Add; record bytes live in arena() until settled.
// Units/limits: bytes as envelope::Record::AccountedBytes; unbounded itself, the pipeline stops
//   reading at its limit. What is settled behind the first unsettled event is kept too, and counts:
//   see retained_bytes.
// Errors: CHECK-fails on programmer errors (a report for an unknown or settled event, a commit
//   without begin) and, at every step, on G5: the safe LSN never passes the commit_lsn of an
//   unsettled event, and never goes back.
// Source: PostgreSQL re-sends exactly the transactions with commit_lsn >= the confirmed position.
#pragma once

#include <glog/logging.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/lsn.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "envelope/record.h"

namespace walpost::delivery {

// Ring - a growing ring buffer: push at the back, pop at the front, index from the front, no
// allocation once warm.
// Why: std::deque allocates a block every few entries of our size, on the path of every event.
// Thread: one owner.   Lifetime: references end with the next PushBack.
template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }

  std::size_t size() const { return size_; }

  T& operator[](std::size_t index) { return slots_[(first_ + index) & (slots_.size() - 1)]; }

  const T& operator[](std::size_t index) const {
    return slots_[(first_ + index) & (slots_.size() - 1)];
  }

  T& front() { return (*this)[0]; }

  T& back() { return (*this)[size_ - 1]; }

  void PushBack(T value) {
    if (size_ == slots_.size()) {
      Grow();
    }
    ++size_;
    back() = std::move(value);
  }

  void PopFront() {
    DCHECK_GT(size_, 0U);
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  void Grow() {
    std::vector<T> larger(slots_.empty() ? 64 : slots_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) {
      larger[i] = std::move((*this)[i]);
    }
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;  // size is zero or a power of two
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

class Tracker {
 public:
  // What a settled entry costs while an earlier one is unsettled.
  static constexpr std::size_t kSettledBytes = 512;
  // Chunks of memory that are partly used in any case.
  static constexpr std::size_t kArenaSlackBytes = 4 * base::ChunkArena::kChunkBytes;

  // What becomes of an entry.
  enum class Form : std::uint8_t {
    kEvent,       // the event is delivered
    kDeadLetter,  // no record goes out: it is settled when its row is committed
    kParked,      // the same, and the later events of its key follow it there
  };

  struct Entry {
    envelope::Record record;
    base::Lsn commit_lsn;
    std::uint32_t ordinal = 0;
    base::WallTime commit_time;
    std::size_t bytes = 0;
    std::uint32_t table = 0;  // the caller's own, to name where it came from
    Form form = Form::kEvent;
    bool settled = false;
  };

  // Where records are encoded to before Add. A record that is not added must be released by the
  // caller.
  base::ChunkArena* arena() { return &arena_; }

  // A transaction's events are whole between Begin and Commit. Its end_lsn becomes safe after all
  // of them and of all before them.
  void BeginTransaction(base::Lsn commit_lsn);
  Sequence Add(const envelope::Record& record, std::uint32_t ordinal, base::WallTime commit_time,
               std::uint32_t table = 0, Form form = Form::kEvent);
  // The event becomes a dead letter, or is one no longer; no sink may hold it.
  void SetForm(Sequence sequence, Form form);
  void CommitTransaction(base::Lsn end_lsn);

  // A keepalive's position: everything that commits before it has been received already. Inside a
  // transaction it counts for what came before that transaction only.
  void ObservePosition(base::Lsn wal_end);

  // The stream ended inside a transaction; it will come again, whole. Events taken stay in flight.
  void LeaveTransaction() { in_transaction_ = false; }

  // Delivered, or decided by a policy. Each event exactly once. Frees its bytes.
  void Settle(Sequence sequence);

  // Gives up everything in flight (it will come again from the slot). No sink may hold a record.
  // Returns the number of events given up.
  std::size_t DiscardAll();

  // Also forgets what was safe; for a new look at a slot that somebody may have moved. CHECK-fails
  // unless empty().
  void ForgetPositions();

  // 0/0 until something became safe.
  base::Lsn safe_lsn() const { return safe_lsn_; }

  // The first unsettled event, or next_sequence() when there is none.
  Sequence oldest_unsettled() const { return first_sequence_; }

  Sequence next_sequence() const { return first_sequence_ + entries_.size(); }

  bool empty() const { return in_flight_events_ == 0; }

  std::size_t in_flight_events() const { return in_flight_events_; }

  std::size_t in_flight_bytes() const { return in_flight_bytes_; }

  // Settled, but behind an event that is not: nothing from there on can be confirmed.
  std::size_t settled_behind() const { return entries_.size() - in_flight_events_; }

  // What is held in memory: what is in flight, what is settled behind it, and the chunks that a few
  // records in flight keep whole.
  std::size_t retained_bytes() const {
    const std::size_t records = in_flight_bytes_ + kArenaSlackBytes;
    const std::size_t chunks = arena_.used_bytes() > records ? arena_.used_bytes() - records : 0;
    return in_flight_bytes_ + settled_behind() * kSettledBytes + chunks;
  }

  bool in_transaction() const { return in_transaction_; }

  // CHECK-fails unless oldest_unsettled() <= sequence < next_sequence().
  const Entry& entry(Sequence sequence) const;

 private:
  // `lsn` is safe once every event below `sequence` is settled.
  struct Checkpoint {
    Sequence sequence = 0;
    base::Lsn lsn;
  };

  Entry* Unsettled(Sequence sequence);
  void PushCheckpoint(Sequence sequence, base::Lsn lsn);
  void Advance();

  base::ChunkArena arena_;
  Ring<Entry> entries_;  // entries_[0] has first_sequence_ and is unsettled, unless empty
  Sequence first_sequence_ = 0;
  Ring<Checkpoint> checkpoints_;  // ascending in sequence
  base::Lsn safe_lsn_;
  bool in_transaction_ = false;
  base::Lsn transaction_commit_lsn_;
  Sequence transaction_first_ = 0;
  std::size_t in_flight_events_ = 0;
  std::size_t in_flight_bytes_ = 0;
};

// PartitionGate - whether a partition may be given a record while others of it are not
// acknowledged.
// Why: a broker accepts any first sequence of a producer that it does not know. Then a record
//   behind one that it rejects becomes visible, and idempotence prevents nothing. So the first
//   record for a broker that may not know this producer is sent alone: of a new producer, of a
//   partition that was idle (a broker forgets a producer after producer.id.expiration.ms without a
//   record of it, 24 h unless configured), and of a topic that was made anew.
// Thread: one owner.   Lifetime: a value, of one producer.
class PartitionGate {
 public:
  // A broker is taken to know the producer for so long after it acknowledged a record.
  static constexpr std::chrono::milliseconds kKnownFor{60'000};

  bool MaySend() const { return outstanding_ == 0 || !alone_; }

  // Nothing may follow the oldest that is outstanding.
  bool alone() const { return alone_; }

  // CHECK-fails unless MaySend.
  void OnSent(base::MonotonicTime now, std::chrono::milliseconds known_for = kKnownFor);

  // `offset` negative = not known. True when it lies before an earlier one: the topic was made
  // anew.
  bool OnAcknowledged(base::MonotonicTime now, std::int64_t offset);

  void OnFailed();

  // The topic was deleted, or is another one of the same name.
  void OnMadeAnew();

 private:
  std::uint32_t outstanding_ = 0;
  std::uint32_t of_before_ = 0;  // of these, sent before the topic was made anew
  bool alone_ = true;            // until an acknowledgement, nothing follows what is outstanding
  bool known_ = false;
  base::MonotonicTime known_at_;  // by an acknowledgement
  std::int64_t next_offset_ = 0;
};

}  // namespace walpost::delivery
