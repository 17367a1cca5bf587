// History - the last hour, as the status page draws it.
// Why: who is called at night sees at once since when it has been so, with or without a monitoring
//   system.
// Thread: a value; SnapshotBoard guards it.
// Units/limits: a point every 15 s, 240 of them, some 40 bytes each.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "base/time.h"

namespace walpost::observe {

struct Snapshot;

struct HistoryPoint {
  base::WallTime at;
  std::uint64_t delivered = 0;  // since the start
  std::uint64_t lag_bytes = 0;
  std::uint64_t in_flight_events = 0;
  std::int64_t oldest_age_ms = 0;  // of what is in flight
};

class History {
 public:
  static constexpr std::chrono::seconds kEvery{15};
  static constexpr std::size_t kPoints = 240;

  // Keeps those that are `kEvery` apart, the first at once.
  void Add(const Snapshot& snapshot);

  const std::deque<HistoryPoint>& points() const { return points_; }

 private:
  std::deque<HistoryPoint> points_;
};

// An array for each field, all of the same length, oldest first.
std::string RenderHistoryJson(const std::deque<HistoryPoint>& points);

}  // namespace walpost::observe
