#include "observe/snapshot.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/text.h"

namespace walpost::observe {

using std::chrono::milliseconds;

void History::Add(const Snapshot& snapshot) {
  if (!points_.empty()) {
    const auto since = snapshot.taken_at - points_.back().at;
    if (since >= since.zero() && since < kEvery) {  // else also when the clock was set back
      return;
    }
  }
  HistoryPoint point;
  point.at = snapshot.taken_at;
  point.delivered = snapshot.counters.events_delivered;
  point.lag_bytes = snapshot.LagBytes();
  point.in_flight_events = snapshot.in_flight_events;
  if (snapshot.oldest_undelivered_commit != base::WallTime()) {
    const auto age =
        std::chrono::floor<milliseconds>(snapshot.taken_at - snapshot.oldest_undelivered_commit);
    point.oldest_age_ms = std::max<std::int64_t>(age.count(), 0);
  }
  if (points_.size() == kPoints) {
    points_.pop_front();
  }
  points_.push_back(point);
}

std::string RenderHistoryJson(const std::deque<HistoryPoint>& points) {
  nlohmann::ordered_json history;
  for (const char* name :
       {"at_ms", "delivered", "lag_bytes", "in_flight_events", "oldest_age_ms"}) {
    history[name] = nlohmann::ordered_json::array();
  }
  for (const HistoryPoint& point : points) {
    history["at_ms"].push_back(
        std::chrono::floor<milliseconds>(point.at).time_since_epoch().count());
    history["delivered"].push_back(point.delivered);
    history["lag_bytes"].push_back(point.lag_bytes);
    history["in_flight_events"].push_back(point.in_flight_events);
    history["oldest_age_ms"].push_back(point.oldest_age_ms);
  }
  return base::JsonText(history) + "\n";
}

}  // namespace walpost::observe
