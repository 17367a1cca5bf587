// EventCounters - what is counted since the start and shown as it is: by the pipeline, in the snapshot, in
// metrics and status.
// Why: one struct, so that what is shown is what was counted.
// Thread: a value. Units: as named.
//   Invariant (Pipeline::Accounted): events_received = events_delivered + events_dead_lettered +
//   events_parked + events_skipped + events_discarded + in flight.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/delay_histogram.h"
#include "base/size_histogram.h"
#include "base/time.h"

namespace walpost::base {

struct EventCounters {
  std::uint64_t transactions = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t bytes_delivered = 0;
  std::uint64_t events_received = 0;
  std::uint64_t events_delivered = 0;
  std::uint64_t events_dead_lettered = 0;
  std::uint64_t events_parked = 0;
  std::uint64_t events_skipped = 0;
  // Sent again by the server after a reconnect, and dropped: already taken.
  std::uint64_t events_repeated = 0;
  // Given up in memory at a halt; they come again from the slot.
  std::uint64_t events_discarded = 0;
  // Not of an outbox: updates, deletes, other tables, other messages.
  std::uint64_t changes_ignored = 0;
  std::uint64_t records_resubmitted = 0;
  std::uint64_t producer_sessions = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t backpressure_ms = 0;
  std::vector<std::pair<std::string, std::uint64_t>> received_by_table;  // "schema.table"
  SizeHistogram transaction_sizes;  // in events; without those that had none
  DelayHistogram delivery_delay;    // commit to acknowledgement
  WallTime last_delivered_at;
};

}  // namespace walpost::base
