// Counters - what the pipeline counts, per process; read by the runtime for the snapshot. Invariant
// (checked by Pipeline::Accounted): events_received = events_delivered +
// events_dead_lettered + events_parked + events_skipped + in flight + events_discarded.
// Thread: loop thread only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/delay_histogram.h"
#include "base/time.h"
#include "pipeline/recent_events.h"

namespace walpost::pipeline {

struct Counters {
  std::uint64_t transactions = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t bytes_delivered = 0;
  std::uint64_t events_received = 0;
  std::uint64_t events_delivered = 0;
  std::uint64_t events_dead_lettered = 0;
  std::uint64_t events_parked = 0;
  std::uint64_t events_skipped = 0;
  std::uint64_t events_repeated =
      0;  // sent again by the server after a reconnect and dropped: already taken
  std::uint64_t events_discarded =
      0;  // given up in memory at a halt; they come again from the slot
  std::uint64_t changes_ignored =
      0;  // not of an outbox: updates, deletes, other tables, other messages
  std::uint64_t records_resubmitted = 0;
  std::uint64_t producer_generations = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t backpressure_ms = 0;
  std::vector<std::pair<std::string, std::uint64_t>> received_by_table;
  std::vector<std::pair<std::string, std::uint64_t>>
      delivered_by_topic;  // index = Tracker::Entry::label
  base::DelayHistogram delivery_delay;
  base::WallTime last_delivered_at;
  RecentEvents recent;
};

}  // namespace walpost::pipeline
