// The part of Pipeline that has progress remembered.
#include <utility>

#include "pipeline/pipeline.h"

namespace walpost::pipeline {

// Before the end: whatever can be delivered is.
bool Pipeline::Drained() const {
  if (phase_ == Phase::kHalting) {
    return tracker_.oldest_unsettled() >= halt_boundary_;
  }
  const bool stuck =
      dispatcher_.verdict() && tracker_.oldest_unsettled() >= dispatcher_.verdict()->sequence;
  return phase_ == Phase::kDraining && ((tracker_.empty() && !completing_) || stuck);
}

void Pipeline::OnLettersRead(LettersRead read, base::Now now) {
  std::optional<Halt> halt = lot_.OnRead(std::move(read), now);
  if (!halt) {
    return;
  }
  if (phase_ == Phase::kStreaming) {
    BeginHalt(*std::move(halt), now);
  } else if (phase_ == Phase::kIdle || phase_ == Phase::kConnecting) {
    halt_ = std::move(halt);
    HaltNow();
  }
}

void Pipeline::CheckProgress(base::Now now) {
  keeper_.Tick(tracker_.safe_lsn(), reply_wanted_ || Drained(), now);
  reply_wanted_ = false;
  lot_.Tick(now);
  dispatcher_.SubmitOwn(now);
  if (phase_ != Phase::kStreaming) {
    return;
  }
  if (auto halt = keeper_.Unwritten(counters_.last_delivered_at)) {
    BeginHalt(*std::move(halt), now);
  }
}

}  // namespace walpost::pipeline
