// ProgressKeeper - what a pipeline remembers across restarts, and what may therefore be confirmed.
// Why: a slot that someone else advanced or made anew connects without complaint, and events are
//   missing. So the safe LSN is first written to a topic of ours, and only what Kafka has
//   acknowledged there is confirmed: a slot above the remembered position was moved by somebody
//   else. It also removes the repeats after a crash that made PostgreSQL forget what was confirmed.
// How: at most one record outstanding and one a second, through the sink of the events; the
//   Dispatcher submits waiting() and reports what became of it.
// Thread: loop thread; no clock of its own.
// Lifetime: the record's bytes stay in place until it is acknowledged, rejected or lost.
// Errors: a record that cannot be written stops no delivery; nothing is confirmed meanwhile, and
//   Unwritten() asks for a halt after a while.
// Source: docs/design.md, "Remembered progress".
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/lsn.h"
#include "base/source_facts.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "envelope/record.h"
#include "pipeline/halt.h"
#include "pipeline/known_transactions.h"
#include "pipeline/options.h"

namespace walpost::pipeline {

class ProgressKeeper {
 public:
  // Sequences from here on are progress records; the tracker does not know them.
  static constexpr delivery::Sequence kFirstSequence = delivery::Sequence{1} << 63U;
  static constexpr std::chrono::milliseconds kEvery{1'000};
  // A position that does not move is written again: a lower one that lands late would else stay the
  // last record, and compaction keeps the last one.
  static constexpr std::chrono::milliseconds kAgainAfter{300'000};
  // Unacknowledged for longer than this, it counts as something undelivered.
  static constexpr std::chrono::milliseconds kLateAfter{500};
  static constexpr std::chrono::milliseconds kRetryRejectedAfter{5'000};
  // Rejected for so long. Between two rejections at most kRejectingMax count: in an outage there
  // are none.
  static constexpr std::chrono::milliseconds kRejectedMax{60'000};
  static constexpr std::chrono::milliseconds kRejectingMax{15'000};
  // Without any answer while events are delivered for so long: Kafka does not report a missing
  // right. Between two deliveries at most kAnsweringMax count, so an outage does not.
  static constexpr std::chrono::milliseconds kUnansweredMax{300'000};
  static constexpr std::chrono::milliseconds kAnsweringMax{10'000};

  // `known` may be null: then the last transaction is not remembered.
  explicit ProgressKeeper(const PipelineOptions& options, const KnownTransactions* known = nullptr);

  bool on() const { return !topic_.empty(); }

  // Whose positions are written from here on, and what is remembered of before. `adopted`: the
  // facts have a table or prefix that is not remembered yet. It is written at once, before the
  // position moves.
  void OnConnected(const base::SourceFacts& facts, bool adopted = false);

  // The catalogs were read once more.
  void OnLooked(const base::Fingerprint& seen);

  // Is this what this process wrote, or may have written? Else another one went on.
  bool IsOurs(const base::Progress& progress) const {
    return progress.epoch <= epoch_ && progress.end_lsn <= std::max(acknowledged_, made_);
  }

  // A record is on its way, or wants to be.
  bool busy() const { return phase_ != Phase::kNone; }

  // For a new look at everything.
  void Forget();

  // The part of `safe` that may be confirmed. At first nothing, until a record of this process is
  // acknowledged: one of a process before it, with a lower position, may still land, and count.
  base::Lsn Confirmable(base::Lsn safe) const {
    return on() ? std::min(safe, awaited_ ? base::Lsn() : acknowledged_) : safe;
  }

  // What was adopted is not remembered yet. Until then nothing is read: a process that takes its
  // place would adopt it later, and take what comes until then for no events.
  bool adopting() const { return on() && adopted_; }

  // There is nothing to wait for before the end.
  bool Settled(base::Lsn safe) const {
    return !on() || (safe <= acknowledged_ && !awaited_) || rejected_at_.has_value();
  }

  // Kafka has said since `answered` that it has taken a record, which was made since `made`.
  bool AcknowledgedSince(base::MonotonicTime made, base::MonotonicTime answered) const {
    return !on() || (taken_made_at_ && *taken_made_at_ >= made && taken_at_ >= answered);
  }

  // One is to be made, also where the position does not move.
  void WriteSince(base::MonotonicTime at) { write_since_ = at; }

  // Something has been unacknowledged for long.
  bool Late(base::Now now) const;

  // Makes a record when one is due: at once with `hurry`. `dead_letters`: rows that were ever
  // written.
  void Tick(base::Lsn safe, std::uint64_t dead_letters, bool hurry, base::Now now);

  // To be submitted now; null = nothing.
  const envelope::Record* waiting(base::Now now) const;

  delivery::Sequence sequence() const { return sequence_; }

  void OnAccepted();
  void OnAcknowledged(base::MonotonicTime now);
  // It, or the topic, is at fault.
  void OnRejected(const delivery::Failure& failure, base::Now now);
  // It went with its session.
  void OnLost();

  // Nothing could be written for so long that an operator must know. `last_delivered_at` is any
  // event's.
  std::optional<Halt> Unwritten(base::WallTime last_delivered_at);

  // Acknowledged, by us or before us.
  const std::optional<base::Progress>& remembered() const { return remembered_; }

  std::optional<base::MonotonicTime> NextDeadline(base::Lsn safe) const;

  // Between two inputs.
  void CheckInvariants() const;

 private:
  enum class Phase {
    kNone,
    kWaiting,      // made, not yet taken by the sink
    kOutstanding,  // taken, not yet reported
  };

  void Make(base::Lsn position, std::uint64_t dead_letters, base::Now now);
  void DropEarlier();

  const KnownTransactions* const known_;
  const std::string topic_;  // empty = off
  const std::string name_;
  std::optional<base::SourceFacts> facts_;
  std::optional<base::Progress> remembered_;
  std::uint64_t epoch_ = 0;  // of this connection
  bool unwritten_ = false;   // no record of it is acknowledged
  bool awaited_ = false;     // and nothing is confirmed before one is
  bool adopted_ = false;     // and that record has a table or prefix that none before it has
  base::Lsn acknowledged_;
  base::Lsn made_;  // the highest position of a record

  Phase phase_ = Phase::kNone;
  base::Progress progress_;  // in the record
  std::string value_;
  envelope::Record record_;
  delivery::Sequence sequence_ = kFirstSequence;
  std::optional<base::MonotonicTime> made_at_;
  std::optional<base::MonotonicTime> taken_made_at_;  // of the last one that was acknowledged
  base::MonotonicTime taken_at_;                      // when that was
  std::optional<base::MonotonicTime> write_since_;
  std::optional<base::Now> unacknowledged_since_;
  base::WallTime delivered_seen_;                   // an event's, when last looked at
  std::chrono::microseconds answering_{0};          // since unacknowledged_since_
  std::optional<base::MonotonicTime> rejected_at_;  // the last time
  std::chrono::milliseconds rejecting_{0};          // since the last acknowledgement
  base::MonotonicTime retry_at_;
  std::string rejection_;
};

}  // namespace walpost::pipeline
