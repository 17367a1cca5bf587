// The part of Pipeline that has progress remembered.
#include <utility>
#include <vector>

#include "pipeline/pipeline.h"

namespace walpost::pipeline {

// Before the end: whatever can be delivered is.
bool Pipeline::Drained() const {
  if (phase_ == Phase::kHalting) {
    return tracker_.oldest_unsettled() >= halt_boundary_;
  }
  const bool stuck =
      dispatcher_.halt_at() && tracker_.oldest_unsettled() >= dispatcher_.halt_at()->sequence;
  return phase_ == Phase::kDraining && ((tracker_.empty() && !completing_) || stuck);
}

void Pipeline::OnDeadLetterReply(DeadLetterReply reply, base::Now now) {
  DeadLetterOutcome outcome;
  std::optional<Halt> halt = dead_letters_.OnReply(std::move(reply), now, &outcome);
  for (const delivery::Sequence sequence : outcome.written) {
    undeliverables_.OnWritten(sequence);
    counters_.last_delivered_at = now.wall;
  }
  for (const delivery::Sequence sequence : outcome.given_back) {
    undeliverables_.GiveBack(sequence);
  }
  if (!outcome.given_back.empty()) {
    dispatcher_.OfferAgain();
  }
  if (!dead_letters_.trouble().empty()) {
    last_error_ = dead_letters_.trouble();
  }
  dispatcher_.Pump();
  CheckDispatcherHalt(now);
  if (!halt) {
    return;
  }
  if (phase_ == Phase::kStreaming) {
    OnSourceHalt(*std::move(halt), now);
  } else if (phase_ == Phase::kIdle || phase_ == Phase::kConnecting) {
    halt_ = std::move(halt);
    HaltNow();
  } else if (halt->reason == base::HaltReason::kTimelineChanged &&
             (phase_ == Phase::kHalting || phase_ == Phase::kDraining)) {
    HaltAtOnce(*std::move(halt));  // nothing more is delivered of what another history has
  }
}

void Pipeline::CheckProgress(base::Now now) {
  intake_.Settle(tracker_.safe_lsn());
  keeper_.Tick(tracker_.safe_lsn(), dead_letters_.written_rows(), reply_wanted_ || Drained(), now);
  reply_wanted_ = false;
  // Without progress the server may fall back to what it has on its disk.
  dead_letters_.OnConfirmable(options_.progress_topic.empty() && facts_
                                  ? std::min(confirmable(), facts_->restart_lsn)
                                  : confirmable());
  dead_letters_.Tick(now);
  dispatcher_.SubmitOwn(now);
  if (phase_ != Phase::kStreaming) {
    return;
  }
  if (auto halt = keeper_.Unwritten(counters_.last_delivered_at)) {
    BeginHalt(*std::move(halt), now);
  }
}

}  // namespace walpost::pipeline
