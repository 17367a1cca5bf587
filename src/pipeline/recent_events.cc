#include "pipeline/recent_events.h"

#include <algorithm>
#include <string_view>

#include "envelope/record.h"

namespace walpost::pipeline {

void RecentEvents::Note(const delivery::Tracker::Entry& entry, delivery::PartitionOffset where,
                        base::WallTime now) {
  room_ -= room_ > 0 ? 1 : 0;
  base::DeliveredEvent& event = ring_[noted_++ % kKept];
  event.id = envelope::HeaderOf(entry.record, "id").substr(0, kTextMax);
  event.type = envelope::HeaderOf(entry.record, "type").substr(0, kTextMax);
  event.topic = entry.record.topic;
  event.partition = where.partition;
  event.offset = where.offset;
  event.commit_lsn = entry.commit_lsn;
  event.committed_at = entry.commit_time;
  event.delivered_at = now;
}

std::vector<base::DeliveredEvent> RecentEvents::NewestFirst() const {
  std::vector<base::DeliveredEvent> events;
  for (std::size_t back = 1; back <= std::min(noted_, kKept); ++back) {
    events.push_back(ring_[(noted_ - back) % kKept]);
  }
  return events;
}

}  // namespace walpost::pipeline
