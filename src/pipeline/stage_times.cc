#include "pipeline/stage_times.h"

#include <chrono>

namespace walpost::pipeline {
namespace {

template <typename Duration>
double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StageTimes::OnTaken(base::WallTime commit_time, base::Now now) {
  taken_at_ = now.mono;
  counters_->stages.source.Add(Seconds(now.wall - commit_time));
}

void StageTimes::OnSubmitted(delivery::Sequence cursor, delivery::Sequence end, base::Now now) {
  if (cursor <= submitted_below_) {
    return;  // nothing, or again after a failure: the first time counts
  }
  submitted_below_ = cursor;
  if (!batches_.empty() && batches_.back().submitted_at == now.mono) {
    batches_.back().end = cursor;
  } else {
    batches_.push_back({cursor, now.mono});
    if (taken_at_) {
      counters_->stages.queue.Add(Seconds(now.mono - *taken_at_));
    }
  }
  if (cursor == end) {
    taken_at_.reset();
  }
}

void StageTimes::OnSettled(delivery::Sequence oldest, base::Now now) {
  while (!batches_.empty() && batches_.front().end <= oldest) {
    counters_->stages.produce.Add(Seconds(now.mono - batches_.front().submitted_at));
    batches_.pop_front();
  }
}

void StageTimes::Forget() {
  taken_at_.reset();
  batches_.clear();
}

}  // namespace walpost::pipeline
