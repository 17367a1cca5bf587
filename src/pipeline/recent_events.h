// RecentEvents - some of the last events that Kafka has taken, newest first, for people to look at.
// Why: to note an event costs several times what it costs to count it. So in each window of time only
//   the first few are noted, and the one that leaves nothing in flight: with few events that is each,
//   and when it falls silent the last one is there.
// Thread: one owner.
// Units/limits: kKept events; of id and type at most kTextMax bytes.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "base/delivered_event.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"

namespace walpost::pipeline {

class RecentEvents {
 public:
  static constexpr std::size_t kKept = 20;
  static constexpr std::chrono::milliseconds kWindow{100};
  static constexpr std::size_t kTextMax = 200;

  // Begins the next window when it is time.
  void Tick(base::MonotonicTime now) {
    if (now >= next_window_) {
      next_window_ = now + kWindow;
      room_ = kKept;
    }
  }

  // Whether an event that was just delivered is to be noted.
  bool Wants(const delivery::Tracker& tracker) const {
    return room_ > 0 || tracker.in_flight_events() == 1;
  }

  void Note(const delivery::Tracker::Entry& entry, delivery::PartitionOffset where,
            base::WallTime now);

  std::vector<base::DeliveredEvent> NewestFirst() const;

 private:
  std::array<base::DeliveredEvent, kKept> ring_;  // its texts keep their memory
  std::size_t noted_ = 0;                         // so far; the next is at noted_ % kKept
  std::size_t room_ = 0;                          // in this window
  base::MonotonicTime next_window_;
};

}  // namespace walpost::pipeline
