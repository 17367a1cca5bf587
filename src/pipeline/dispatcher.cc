#include "pipeline/dispatcher.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace walpost::pipeline {

using delivery::FailureKind;
using delivery::Sink;
using delivery::SubmitResult;

Dispatcher::Dispatcher(const Options& options, delivery::Tracker* tracker, Sink* sink,
                       Counters* counters, Decider* decider, ParkingLot* lot,
                       ProgressKeeper* progress, envelope::SchemaTable* schemas)
    : options_(options),
      backoff_(options.backoff, options.seed),
      tracker_(tracker),
      sink_(sink),
      counters_(counters),
      decider_(decider),
      lot_(lot),
      progress_(progress),
      schemas_(schemas),
      stages_(counters) {}

void Dispatcher::Start(base::Now now) {
  CHECK(phase_ == Phase::kIdle);
  now_ = now;
  verdict_.reset();
  unclear_failures_ = 0;
  shutting_down_ = false;
  stages_.Forget();
  Open(Sink::Mode::kFast);
}

void Dispatcher::Gather(base::Now now) {
  quiet_ = false;
  if (stages_.wants_event()) {
    stages_.OnTaken(tracker_->entry(tracker_->next_sequence() - 1).commit_time, now);
  }
  const bool behind = !held_since_ && cursor_ + 1 < tracker_->next_sequence();
  if (options_.gather_for.count() == 0 || phase_ != Phase::kFast || behind ||
      tracker_->next_sequence() - cursor_ >= kGatherEvents) {
    Pump();
  } else if (!held_since_) {
    held_since_ = now.mono;
  }
}

void Dispatcher::OnQuiet(base::Now now) {
  quiet_ = true;
  if (!held_since_ || now.mono >= HeldUntil()) {
    Pump();
  }
}

base::MonotonicTime Dispatcher::HeldUntil() const {
  if (awaits_reports()) {
    return *held_since_ + options_.gather_max;
  }
  return quiet_ ? *held_since_ : *held_since_ + options_.gather_for;
}

void Dispatcher::Pump() {
  held_since_.reset();
  if (phase_ != Phase::kFast && phase_ != Phase::kCareful) {
    return;
  }
  // First, so that they have their turn in careful mode too.
  SubmitOwn(now_);
  SubmitTracked();
  stages_.OnSubmitted(cursor_, tracker_->next_sequence(), now_);
}

void Dispatcher::SubmitTracked() {
  // What came before a verdict is still delivered, by a new generation if need be.
  const delivery::Sequence end = verdict_ ? verdict_->sequence : tracker_->next_sequence();
  while (cursor_ < end) {
    cursor_ = std::max(cursor_, tracker_->oldest_unsettled());
    if (cursor_ >= end) {
      return;
    }
    const delivery::Tracker::Entry& entry = tracker_->entry(cursor_);
    if (entry.settled) {
      ++cursor_;
      continue;
    }
    if (lot_->any() && !MayGo(entry)) {
      return;
    }
    if (entry.form == delivery::Tracker::Form::kParked && !lot_->MayWrite(cursor_)) {
      return;
    }
    const SubmitResult result = Submit(entry.record, cursor_);
    if (result.outcome == SubmitResult::Outcome::kNotNow) {
      return;
    }
    if (result.outcome == SubmitResult::Outcome::kRefused) {
      if (!Decide(cursor_, result.failure, 1)) {
        return;
      }
      continue;  // settled, or its letter is in its place
    }
    if (cursor_ < resubmit_below_) {
      ++counters_->records_resubmitted;
    }
    ++cursor_;
  }
}

// An event of a parked key becomes a letter. False: its key is just being released, it waits.
bool Dispatcher::MayGo(const delivery::Tracker::Entry& entry) {
  const std::optional<std::string_view>& key = entry.record.key;
  if (entry.form != delivery::Tracker::Form::kEvent || !key) {
    return true;
  }
  if (lot_->IsHeld(entry.record.topic, *key)) {
    return false;
  }
  if (lot_->Follows(entry.record.topic, *key, cursor_)) {
    decider_->Follow(cursor_);
  }
  return true;
}

// What needs a schema gets its frame here, and waits while the schema is not known.
SubmitResult Dispatcher::Submit(const envelope::Record& record, delivery::Sequence sequence) {
  if (record.schema == 0) {
    return sink_->Submit(record, sequence);
  }
  const envelope::SchemaTable::Entry& schema = schemas_->Use(record.schema);
  switch (schema.state) {
    case envelope::SchemaTable::State::kUnknown:
      return {SubmitResult::Outcome::kNotNow, {}};
    case envelope::SchemaTable::State::kRefused:
      return {SubmitResult::Outcome::kRefused, {FailureKind::kSchemaRefused, schema.refusal}};
    case envelope::SchemaTable::State::kKnown:
      break;
  }
  return sink_->Submit(Framed(record, schema.need.framing, schema.frame), sequence);
}

// False: only an operator can.
bool Dispatcher::Decide(delivery::Sequence sequence, const delivery::Failure& failure,
                        int attempts) {
  std::optional<Halt> halt =
      decider_->Decide(sequence, failure, static_cast<std::uint32_t>(attempts));
  if (halt) {
    verdict_ = Verdict{sequence, *std::move(halt)};
  }
  return !halt;
}

void Dispatcher::SubmitOwn(base::Now now) {
  if (phase_ != Phase::kFast && phase_ != Phase::kCareful) {
    return;
  }
  if (const envelope::Record* record = progress_ == nullptr ? nullptr : progress_->waiting(now)) {
    const SubmitResult result = sink_->Submit(*record, progress_->sequence());
    if (result.outcome == SubmitResult::Outcome::kAccepted) {
      progress_->OnAccepted();
    } else if (result.outcome == SubmitResult::Outcome::kRefused) {
      progress_->OnRefused(result.failure, now);
    }
  }
  if (const envelope::Record* record = lot_->waiting(now)) {
    const SubmitResult result = Submit(*record, lot_->sequence());
    if (result.outcome == SubmitResult::Outcome::kAccepted) {
      lot_->OnAccepted();
    } else if (result.outcome == SubmitResult::Outcome::kRefused) {
      lot_->OnRefused(result.failure, /*alone=*/true, now);
    }
  }
}

void Dispatcher::Poll(base::Now now) {
  now_ = now;
  counters_->recent.Tick(now.mono);
  sink_->Poll(now, this);
  if (phase_ != Phase::kIdle) {
    stages_.OnSettled(tracker_->oldest_unsettled(), now);
  }
  if (phase_ == Phase::kWaiting && now.mono >= reopen_at_) {
    Open(next_mode_);
  }
  if (phase_ == Phase::kCareful && tracker_->empty() && !verdict_ && !lot_->needs_verdict()) {
    EndGeneration(Sink::Mode::kFast, /*back_off=*/false);
  }
  if (!held_since_ || now.mono >= HeldUntil()) {
    Pump();
  }
}

void Dispatcher::ShutDown() {
  shutting_down_ = true;
  if (phase_ == Phase::kWaiting) {
    phase_ = Phase::kIdle;
  } else if (phase_ != Phase::kIdle && phase_ != Phase::kClosing) {
    EndGeneration(Sink::Mode::kFast, /*back_off=*/false);
  }
}

std::optional<base::MonotonicTime> Dispatcher::NextDeadline() const {
  std::optional<base::MonotonicTime> deadline = sink_->NextDeadline();
  if (phase_ == Phase::kWaiting) {
    deadline = deadline ? std::min(*deadline, reopen_at_) : reopen_at_;
  }
  if (held_since_) {
    const base::MonotonicTime pump_at = HeldUntil();
    deadline = deadline ? std::min(*deadline, pump_at) : pump_at;
  }
  return deadline;
}

void Dispatcher::OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) {
  if (sequence >= ProgressKeeper::kFirstSequence) {
    progress_->OnAcknowledged();
    return;
  }
  if (sequence >= ParkingLot::kFirstSequence) {
    lot_->OnAcknowledged();
    return;
  }
  const delivery::Tracker::Entry& entry = tracker_->entry(sequence);
  switch (entry.form) {
    case delivery::Tracker::Form::kEvent:
      ++counters_->events_delivered;
      ++counters_->delivered_by_topic[entry.label].second;
      counters_->bytes_delivered += entry.bytes;
      counters_->delivery_delay.Add(
          std::chrono::duration<double>(now_.wall - entry.commit_time).count());
      if (counters_->recent.Wants(*tracker_)) {
        counters_->recent.Note(entry, where, now_.wall);
      }
      break;
    case delivery::Tracker::Form::kLetter:
      ++counters_->events_dead_lettered;
      break;
    case delivery::Tracker::Form::kParked:
      ++counters_->events_parked;
      break;
  }
  counters_->last_delivered_at = now_.wall;
  tracker_->Settle(sequence);
  backoff_.Reset();
}

void Dispatcher::OnFailed(delivery::Sequence sequence, const delivery::Failure& failure) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kIdle || phase_ == Phase::kWaiting) {
    return;  // the generation is over already; the record is submitted again
  }
  if (sequence >= ParkingLot::kFirstSequence) {
    OnOwnFailed(sequence, failure);
    return;
  }
  if (phase_ == Phase::kFast || failure.kind == FailureKind::kGenerationEnded) {
    EndGeneration(Sink::Mode::kCareful, /*back_off=*/failure.kind == FailureKind::kGenerationEnded);
    return;
  }
  int attempts = 1;
  if (failure.kind == FailureKind::kOther) {
    unclear_failures_ = unclear_sequence_ == sequence ? unclear_failures_ + 1 : 1;
    unclear_sequence_ = sequence;
    if (unclear_failures_ < options_.attempts_max) {
      decider_->Retry(sequence, failure, static_cast<std::uint32_t>(unclear_failures_));
      EndGeneration(Sink::Mode::kCareful, /*back_off=*/true);
      return;
    }
    attempts = std::exchange(unclear_failures_, 0);  // its letter has attempts of its own
  }
  // Nothing else is outstanding and nothing could have overtaken it, but librdkafka 2.0.2 may send
  // nothing more, without any sign, while it gives its producer a new epoch: also here the producer
  // goes, and another takes its place at once.
  const bool decided = Decide(sequence, failure, attempts);
  EndGeneration(Sink::Mode::kCareful, /*back_off=*/!decided);
}

// Its failure ends the generation like any other, but is never a verdict on an event.
void Dispatcher::OnOwnFailed(delivery::Sequence sequence, const delivery::Failure& failure) {
  if (failure.kind != FailureKind::kGenerationEnded) {
    if (sequence >= ProgressKeeper::kFirstSequence) {
      progress_->OnRefused(failure, now_);
    } else {
      lot_->OnRefused(failure, phase_ == Phase::kCareful, now_);
    }
  }
  EndGeneration(Sink::Mode::kCareful, /*back_off=*/failure.kind == FailureKind::kGenerationEnded);
}

void Dispatcher::OnGenerationFailed(const delivery::Failure&) {
  if (phase_ == Phase::kFast || phase_ == Phase::kCareful) {
    EndGeneration(Sink::Mode::kCareful, /*back_off=*/true);
  }
}

void Dispatcher::OnClosed() {
  CHECK(phase_ == Phase::kClosing);
  if (progress_ != nullptr) {
    progress_->OnLost();
  }
  lot_->OnLost();
  if (shutting_down_) {
    phase_ = Phase::kIdle;
    return;
  }
  phase_ = Phase::kWaiting;
  reopen_at_ = back_off_ ? now_.mono + backoff_.Next() : now_.mono;
}

void Dispatcher::Open(Sink::Mode mode) {
  sink_->Open(mode);
  phase_ = mode == Sink::Mode::kFast ? Phase::kFast : Phase::kCareful;
  ++counters_->producer_generations;
  cursor_ = tracker_->oldest_unsettled();
}

void Dispatcher::EndGeneration(Sink::Mode next, bool back_off) {
  resubmit_below_ = std::max(resubmit_below_, cursor_);
  held_since_.reset();
  if (!shutting_down_) {
    ++(next == Sink::Mode::kFast ? counters_->producers_after_recovery
                                 : counters_->producers_after_failure);
  }
  next_mode_ = next;
  back_off_ = back_off;
  phase_ = Phase::kClosing;
  sink_->Close();
}

}  // namespace walpost::pipeline
