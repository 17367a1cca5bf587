#include "pipeline/dispatcher.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace walpost::pipeline {

using delivery::FailureKind;
using delivery::Sink;
using delivery::SubmitResult;

Dispatcher::Dispatcher(const Options& options, delivery::Tracker* tracker, Sink* sink,
                       Counters* counters, Undeliverables* undeliverables,
                       DeadLetters* dead_letters, ProgressKeeper* progress,
                       envelope::SchemaTable* schemas)
    : options_(options),
      backoff_(options.backoff, options.seed),
      tracker_(tracker),
      sink_(sink),
      counters_(counters),
      undeliverables_(undeliverables),
      dead_letters_(dead_letters),
      progress_(progress),
      schemas_(schemas),
      stages_(counters),
      report_waits_({kReportWaitMin, kReportWaitMax, kReportWaitMin}, options.seed) {}

void Dispatcher::Start(base::Now now) {
  CHECK(phase_ == Phase::kIdle);
  now_ = now;
  halt_at_.reset();
  topics_.ForgetAll();
  release_rejections_.Forget();
  sink_->ForgetRejections();
  shutting_down_ = suspended_ = false;
  stages_.Forget();
  Open(Sink::Mode::kPipelined);
}

void Dispatcher::Gather(base::Now now) {
  quiet_ = false;
  if (stages_.wants_event()) {
    stages_.OnTaken(tracker_->entry(tracker_->next_sequence() - 1).commit_time, now);
  }
  const bool behind = !held_since_ && cursor_ + 1 < tracker_->next_sequence();
  if (options_.gather_for.count() == 0 || phase_ != Phase::kPipelined || behind ||
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
  const auto gather_for = quiet_ ? std::chrono::microseconds(0) : options_.gather_for;
  return *held_since_ + (awaits_reports() ? options_.gather_max : gather_for);
}

void Dispatcher::Pump() {
  held_since_.reset();
  if (!open()) {
    return;
  }
  // What came before a halt is still delivered, by a new session if need be.
  const delivery::Sequence end = halt_at_ ? halt_at_->sequence : tracker_->next_sequence();
  // What waited for its topic goes first: a record that is sent again may have it looked up again.
  const bool goes_on = topics_.empty() || SubmitHeld(end);
  SubmitOwn(now_);  // before the line, so that they have their turn one at a time too
  if (goes_on) {
    SubmitLine(end);
  }
  stages_.OnSubmitted(cursor_, tracker_->next_sequence(), now_);
}

void Dispatcher::SubmitLine(delivery::Sequence end) {
  for (; cursor_ < end; ++cursor_) {
    cursor_ = std::max(cursor_, tracker_->oldest_unsettled());
    if (cursor_ >= end || dead_letters_->Crowded(cursor_)) {
      return;
    }
    const delivery::Tracker::Entry& entry = tracker_->entry(cursor_);
    const bool behind =
        !topics_.empty() && IsOffered(cursor_) && topics_.IsHeld(entry.record.topic);
    const Fate fate = behind ? Fate::kHeld : Offer(cursor_);
    // Also while keys are parked: each is one of a topic, so the topic's order is all it needs.
    if (fate == Fate::kHeld) {
      topics_.Hold(entry.record.topic, cursor_);
    } else if (fate != Fate::kGone) {
      return;
    }
  }
}

// What waits with its topic, in the topic's order. False: the line stops here.
bool Dispatcher::SubmitHeld(delivery::Sequence end) {
  while (const std::optional<std::string> topic = topics_.Due(now_.mono)) {
    Fate fate = Fate::kGone;
    while (fate == Fate::kGone) {
      const std::optional<delivery::Sequence> first = topics_.First(*topic);
      if (first && dead_letters_->Crowded(*first)) {
        fate = Fate::kPostponed;
        break;
      }
      fate = !first || *first >= end ? Fate::kHeld : Offer(*first);
      if (fate == Fate::kGone) {
        topics_.PopFirst(*topic);
      }
    }
    if (fate == Fate::kStopped) {
      topics_.EndRound();
      return false;
    }
    if (fate == Fate::kPostponed) {
      topics_.Postpone(*topic);
    } else {
      topics_.Wait(*topic);
    }
  }
  return !topics_.EndRound();
}

Dispatcher::Fate Dispatcher::Offer(delivery::Sequence sequence) {
  // Until it is decided about: a dead letter needs no sink.
  while (IsOffered(sequence)) {
    const delivery::Tracker::Entry& entry = tracker_->entry(sequence);
    if (const auto fate = dead_letters_->parked_keys() > 0 ? Follow(sequence) : std::nullopt) {
      return *fate;
    }
    const HeldTopics::Step step =
        topics_.empty() ? HeldTopics::Step::kTry : topics_.Next(entry.record.topic, now_.mono);
    if (step == HeldTopics::Step::kWait) {
      topics_.WakeFor(entry.record.topic, now_.mono);
      return Fate::kHeld;
    }
    if (phase_ == Phase::kPipelined && topics_.IsUnclear(entry.record.topic)) {
      // A pipelined producer fails as a whole, and its answer says nothing about one record.
      EndFailedSession(/*back_off=*/false);
      return Fate::kStopped;
    }
    const SubmitResult result =
        step == HeldTopics::Step::kDecide
            ? SubmitResult{SubmitResult::Outcome::kRejected, topics_.rejection(entry.record.topic)}
            : Submit(entry.record, sequence);
    switch (result.outcome) {
      case SubmitResult::Outcome::kAccepted:
        if (!topics_.empty()) {
          topics_.OnAccepted(entry.record.topic);
        }
        if (sequence < resubmit_below_) {
          ++counters_->records_resubmitted;
        }
        return Fate::kGone;
      case SubmitResult::Outcome::kNotNow:
        return Fate::kStopped;
      case SubmitResult::Outcome::kTopicPending:
        topics_.OnPending(entry.record.topic);
        return Fate::kHeld;
      case SubmitResult::Outcome::kRejected:
        break;
    }
    if (HeldTopics::IsOfTopic(result.failure.kind) && step == HeldTopics::Step::kTry &&
        !topics_.OnRejected(entry.record.topic, result.failure, now_.mono)) {
      return Fate::kHeld;
    }
    if (!Decide(sequence, result.failure, 1)) {
      return Fate::kStopped;
    }
  }
  return Fate::kGone;
}

bool Dispatcher::IsOffered(delivery::Sequence sequence) const {
  return sequence >= tracker_->oldest_unsettled() && !tracker_->entry(sequence).settled &&
         tracker_->entry(sequence).form == delivery::Tracker::Form::kEvent;
}

// An event of a parked key becomes a dead letter, and waits while its key is just being released.
// Nothing: it goes by itself.
std::optional<Dispatcher::Fate> Dispatcher::Follow(delivery::Sequence sequence) {
  const delivery::Tracker::Entry& entry = tracker_->entry(sequence);
  const std::optional<std::string_view>& key = entry.record.key;
  if (!key) {
    return std::nullopt;
  }
  if (dead_letters_->IsHeld(entry.record.topic, *key, sequence)) {
    return Fate::kPostponed;
  }
  if (!dead_letters_->Follows(entry.record.topic, *key, sequence)) {
    return std::nullopt;
  }
  if (std::optional<Halt> halt = undeliverables_->Follow(sequence)) {
    halt_at_ = HaltAt{sequence, *std::move(halt)};
    return Fate::kStopped;
  }
  topics_.OnDecided(entry.record.topic, sequence);
  return Fate::kGone;
}

// What needs a schema gets its frame here, and waits while the schema is not known.
SubmitResult Dispatcher::Submit(const envelope::Record& record, delivery::Sequence sequence) {
  if (record.schema == 0) {
    return sink_->Submit(record, sequence);
  }
  // Who writes events invents topics and names. So nothing is asked, or registered, for a topic
  // that may not exist; and what waits for an answer holds its own topic only.
  if (schemas_->entry(record.schema).state == envelope::SchemaTable::State::kUnknown) {
    if (SubmitResult topic = sink_->FindTopic(record);
        topic.outcome != SubmitResult::Outcome::kAccepted) {
      return topic;
    }
  }
  const envelope::SchemaTable::Entry& schema = schemas_->Use(record.schema);
  switch (schema.state) {
    case envelope::SchemaTable::State::kUnknown:
      topics_without_schema_.emplace(record.topic);
      for (const delivery::Sequence behind : topics_.FirstOf(record.topic, kSchemasAhead)) {
        if (IsOffered(behind) && tracker_->entry(behind).record.schema != 0) {
          schemas_->Use(tracker_->entry(behind).record.schema);  // asked for together
        }
      }
      return {SubmitResult::Outcome::kTopicPending, {}};
    case envelope::SchemaTable::State::kRejected:
      return {SubmitResult::Outcome::kRejected,
              {FailureKind::kSchemaRejected, schema.rejection, schema.unclear}};
    case envelope::SchemaTable::State::kKnown:
      break;
  }
  return sink_->Submit(Framed(record, schema.need.framing, schema.frame), sequence);
}

// False: only an operator can.
bool Dispatcher::Decide(delivery::Sequence sequence, const delivery::Failure& failure,
                        std::uint32_t attempts) {
  const std::string topic(tracker_->entry(sequence).record.topic);
  std::optional<Halt> halt = undeliverables_->Decide(sequence, failure, attempts);
  if (halt) {
    halt_at_ = HaltAt{sequence, *std::move(halt)};
  } else {
    topics_.OnDecided(topic, sequence);
  }
  return !halt;
}

void Dispatcher::OnSchemas() {
  for (const std::string& topic : std::exchange(topics_without_schema_, {})) {
    topics_.OnAnswered(topic, /*known=*/false);
  }
  Pump();
}

void Dispatcher::SubmitOwn(base::Now now) {
  if (!open()) {
    return;
  }
  if (const envelope::Record* record = progress_ == nullptr ? nullptr : progress_->waiting(now)) {
    const SubmitResult result = sink_->Submit(*record, progress_->sequence());
    if (result.outcome == SubmitResult::Outcome::kAccepted) {
      progress_->OnAccepted();
    } else if (result.outcome == SubmitResult::Outcome::kRejected) {
      progress_->OnRejected(result.failure, now);
    }
  }
  if (const envelope::Record* record = dead_letters_->waiting(now)) {
    const SubmitResult result = Submit(*record, dead_letters_->sequence());
    if (result.outcome == SubmitResult::Outcome::kAccepted) {
      dead_letters_->OnAccepted();
    } else if (result.outcome == SubmitResult::Outcome::kRejected) {
      OnReleaseRejected(result.failure, /*alone=*/true, now);
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
  if (dead_letters_->recalled()) {
    OfferAgain();
  }
  const bool done = only_held() && !dead_letters_->needs_answer();
  if (phase_ == Phase::kOneAtATime && !halt_at_ && (done || now.mono >= report_by_)) {
    if (done) {
      report_waits_.Reset();
    }
    ++counters_->producers_after_recovery;
    EndSession(Sink::Mode::kPipelined);
  }
  const auto wakes_at = topics_.NextDeadline();
  if (!held_since_ || now.mono >= HeldUntil() || (wakes_at && now.mono >= *wakes_at)) {
    Pump();
  }
}

void Dispatcher::ShutDown() {
  shutting_down_ = true;
  if (phase_ == Phase::kWaiting) {
    phase_ = Phase::kIdle;
  } else if (phase_ != Phase::kIdle && phase_ != Phase::kClosing) {
    EndSession(Sink::Mode::kPipelined);
  }
}

void Dispatcher::Suspend() {
  suspended_ = true;
  if (phase_ == Phase::kWaiting) {
    phase_ = Phase::kIdle;
  } else if (open()) {
    EndSession(next_mode_);
  }
}

void Dispatcher::Resume() {
  suspended_ = false;
  if (phase_ == Phase::kIdle && !shutting_down_) {
    Open(next_mode_);
  }
}

std::optional<base::MonotonicTime> Dispatcher::NextDeadline() const {
  std::optional<base::MonotonicTime> deadline = sink_->NextDeadline();
  const auto by = [&deadline](base::MonotonicTime time) {
    deadline = std::min(deadline.value_or(time), time);
  };
  if (phase_ == Phase::kWaiting) {
    by(reopen_at_);
  }
  if (const auto wakes_at = topics_.NextDeadline()) {
    by(*wakes_at);
  }
  if (phase_ == Phase::kOneAtATime && now_.mono < report_by_) {
    by(report_by_);
  }
  if (held_since_) {
    by(HeldUntil());
  }
  return deadline;
}

void Dispatcher::OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) {
  backoff_.Reset();
  if (sequence >= ProgressKeeper::kFirstSequence) {
    progress_->OnAcknowledged(now_.mono);
    return;
  }
  if (sequence >= DeadLetters::kFirstSequence) {
    release_rejections_.OnTaken(dead_letters_->record(), now_.mono);
    dead_letters_->OnAcknowledged();
    return;
  }
  report_by_ = now_.mono + report_wait_;
  const delivery::Tracker::Entry& entry = tracker_->entry(sequence);
  counters_->OnDelivered(*tracker_, entry, where, now_.wall);
  ++delivered_;
  if (!topics_.empty()) {
    topics_.OnDelivered(entry.record.topic, sequence);
  }
  if (!rejections_.empty()) {
    rejections_.OnTaken(entry.record, now_.mono);
  }
  tracker_->Settle(sequence);
}

void Dispatcher::OnFailed(delivery::Sequence sequence, const delivery::Failure& failure) {
  if (!open()) {
    return;  // the session is over already; the record is submitted again
  }
  if (failure.must_last || failure.IsAboutTheRecord()) {
    backoff_.Reset();  // Kafka answers
  }
  if (sequence >= DeadLetters::kFirstSequence) {
    OnOwnFailed(sequence, failure);
    return;
  }
  if (phase_ == Phase::kPipelined || failure.kind == FailureKind::kSessionEnded) {
    EndFailedSession(/*back_off=*/failure.kind == FailureKind::kSessionEnded);
    return;
  }
  report_waits_.Reset();
  std::uint32_t attempts = 1;
  // kTopicUnknown: of a topic that the look-up found, so the broker does not know it yet.
  if (failure.must_last || failure.kind == FailureKind::kOther ||
      failure.kind == FailureKind::kTopicUnknown) {
    const HeldTopics::Unclear unclear = topics_.OnUnclear(tracker_->entry(sequence).record,
                                                          sequence, failure, delivered_, now_.mono);
    attempts = unclear.attempts;
    if (!unclear.decided) {
      undeliverables_->Retry(sequence, failure, attempts);
      // What must last is about this topic, which waits for its own time: the others need not.
      EndFailedSession(/*back_off=*/!failure.must_last);
      return;
    }
  }
  // Nothing else is outstanding and nothing could have overtaken it, but librdkafka 2.0.2 may send
  // nothing more, without any sign, while it gives its producer a new epoch: also here the producer
  // goes, and another takes its place at once.
  EndFailedSession(/*back_off=*/!Decide(sequence, failure, attempts));
}

// Its failure ends the session like any other, but never decides about an event.
void Dispatcher::OnOwnFailed(delivery::Sequence sequence, const delivery::Failure& failure) {
  if (failure.kind != FailureKind::kSessionEnded) {
    if (sequence >= ProgressKeeper::kFirstSequence) {
      progress_->OnRejected(failure, now_);
    } else {
      OnReleaseRejected(failure, /*alone=*/phase_ == Phase::kOneAtATime, now_);
    }
  }
  EndFailedSession(/*back_off=*/failure.kind == FailureKind::kSessionEnded);
}

void Dispatcher::OnReleaseRejected(const delivery::Failure& failure, bool alone, base::Now now) {
  const auto left = alone ? release_rejections_.Count(dead_letters_->record(), failure,
                                                      DeadLetters::kRetryRejectedAfter, now.mono)
                          : std::chrono::milliseconds(0);
  dead_letters_->OnRejected(failure, alone, left, now);
}

void Dispatcher::OnSessionFailed(const delivery::Failure&) {
  if (open()) {
    EndFailedSession(/*back_off=*/true);
  }
}

void Dispatcher::OnProducerOutgrown() {
  if (open()) {
    ++counters_->producers_for_settings;
    EndSession(mode());
  }
}

void Dispatcher::OfferAgain() {
  if (open()) {
    ++counters_->producers_after_recall;
    EndSession(mode());
  }
}

void Dispatcher::OnTopicAnswered(std::string_view topic, bool known) {
  topics_.OnAnswered(topic, known);
}

void Dispatcher::OnClosed() {
  CHECK(phase_ == Phase::kClosing);
  if (progress_ != nullptr) {
    progress_->OnLost();
  }
  dead_letters_->OnLost();
  if (shutting_down_ || suspended_) {
    phase_ = Phase::kIdle;
    return;
  }
  phase_ = Phase::kWaiting;
  reopen_at_ = back_off_ ? now_.mono + backoff_.Next() : now_.mono;
}

void Dispatcher::Open(Sink::Mode mode) {
  sink_->Open(mode);
  phase_ = mode == Sink::Mode::kPipelined ? Phase::kPipelined : Phase::kOneAtATime;
  ++counters_->producer_sessions;
  if (mode == Sink::Mode::kOneAtATime) {
    report_wait_ = report_waits_.Next();
  }
  report_by_ = now_.mono + report_wait_;
  cursor_ = tracker_->oldest_unsettled();
}

void Dispatcher::EndFailedSession(bool back_off) {
  ++counters_->producers_after_failure;
  EndSession(Sink::Mode::kOneAtATime, back_off);
}

void Dispatcher::EndSession(Sink::Mode next, bool back_off) {
  resubmit_below_ = std::max(resubmit_below_, cursor_);
  held_since_.reset();
  topics_.ForgetQueues();
  topics_without_schema_.clear();
  next_mode_ = next;
  back_off_ = back_off;
  phase_ = Phase::kClosing;
  sink_->Close();
}

}  // namespace walpost::pipeline
