// StageTimes - where the time between a commit and its acknowledgement goes: to us, through us, or
// through Kafka.
// Why: one delay shows that something is slow, but not which side.
// How: one sample of each stage for each batch that goes to the producer, of the event that waited
//   longest; nothing is done for a single event.
// Thread: loop thread.   Lifetime: `counters` must outlive it.
#pragma once

#include <deque>
#include <optional>

#include "base/time.h"
#include "delivery/sink.h"
#include "pipeline/counters.h"

namespace walpost::pipeline {

class StageTimes {
 public:
  explicit StageTimes(Counters* counters) : counters_(counters) {}

  // True when the next event taken is the first of a batch, for OnTaken.
  bool wants_event() const { return !taken_at_; }

  // The first event of a batch was taken from the stream.
  void OnTaken(base::WallTime commit_time, base::Now now);

  // Everything below `cursor` is with a producer, of everything below `end` that was taken.
  void OnSubmitted(delivery::Sequence cursor, delivery::Sequence end, base::Now now);

  // Everything below `oldest` is acknowledged or decided.
  void OnSettled(delivery::Sequence oldest, base::Now now);

  // What is in flight is given up.
  void Forget();

 private:
  struct Batch {
    delivery::Sequence end = 0;
    base::MonotonicTime submitted_at;
  };

  Counters* const counters_;
  std::optional<base::MonotonicTime> taken_at_;  // of the oldest event that is not submitted
  delivery::Sequence submitted_below_ = 0;       // by any producer so far
  std::deque<Batch> batches_;                    // not acknowledged
};

}  // namespace walpost::pipeline
