// Figures - what is counted and measured, as it is shown.
// Why here: pipeline, postgres, kafka and runtime fill them in, observe shows them; none may use
// the other.
// Thread: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::base {

// An event that Kafka has taken, as people are shown it: never its payload or key.
struct DeliveredEvent {
  std::string id;    // empty = its record says none
  std::string type;  // the same
  std::string topic;
  std::int32_t partition = -1;  // -1 = not known
  std::int64_t offset = -1;     // the same
  Lsn commit_lsn;
  WallTime committed_at;
  WallTime delivered_at;
};

// PingQuestion, PingAnswer - what a new connection to the source server is for, and what it comes
// to.
enum class PingQuestion : std::uint8_t {
  kServes,  // does the server take connections? No SQL
  kSlot,    // and is the slot still streamed to this process?
};

enum class PingAnswer : std::uint8_t {
  kServes,    // or whatever else does not say that it stops; about the slot it says nothing
  kStopping,  // it rejects connections: once streaming, that is a shutdown
  kNone,      // nobody answered in time
  kOurs,      // the slot is streamed to this process
  kNotOurs,   // it is not: nobody reads it, or another process does
  kNotSaid,   // the server answered, and does not let this role ask
};

// ServerFigures - what an SQL connection read about the slot, its WAL and the outbox tables.
// Why here: postgres fills it in, observe shows it; neither may use the other.
// Thread: a value.   Units: bytes, and times since 1970. Absent = the server does not say.
struct OutboxPartitions {
  std::string table;  // "schema.table"
  std::uint64_t count = 0;
  // Of those with bounds in time; zero = there is none.
  WallTime oldest_end;
  WallTime newest_end;
};

struct SlotFigures {
  bool active = false;
  std::string wal_status;           // reserved, extended, unreserved, lost
  std::string invalidation_reason;  // empty = it is valid
  std::uint64_t retained_bytes = 0;
  std::optional<std::uint64_t> safe_wal_bytes;  // absent = no limit
  // Of pg_stat_replication_slots, since 14.
  std::optional<std::uint64_t> spilled_transactions;
  std::optional<std::uint64_t> spilled_bytes;
  std::optional<std::uint64_t> decoded_bytes;

  bool lost() const { return wal_status == "lost" || !invalidation_reason.empty(); }
};

struct ServerFigures {
  std::uint64_t system_identifier = 0;
  bool in_recovery = false;
  Lsn wal_lsn;  // written or, by a standby, received
  // Absent = there is none of that name. Never the copy that a standby keeps for a failover.
  std::optional<SlotFigures> slot;
  std::vector<OutboxPartitions> partitions;  // of the outbox tables that are partitioned
};

// BrokerFigures - what librdkafka counts of one broker's connection.
// Why here: kafka fills it in, observe shows it; neither may use the other.
// Thread: a value.   Units: seconds. Counters begin at 0 with each producer.
struct BrokerFigures {
  std::string address;  // host:port
  bool up = false;
  std::uint64_t queued_requests = 0;   // not sent yet
  std::uint64_t waiting_requests = 0;  // sent, not answered
  double round_trip_p99 = 0;           // of the last interval; 0 = no request in it
  double throttle_max = 0;             // of the last interval: the broker's quotas
  std::uint64_t send_errors = 0;
  std::uint64_t receive_errors = 0;
  std::uint64_t retries = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t disconnects = 0;
};

// DelayHistogram - counts of delays in buckets with fixed upper bounds, the last one +Inf.
// Why here: pipeline fills it per event, observe exposes it.
// Units: seconds; a negative delay (clocks differ) counts as zero.
struct DelayHistogram {
  static constexpr std::array<double, 16> kUpperBoundsSeconds = {
      0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120, 600};

  std::array<std::uint64_t, kUpperBoundsSeconds.size() + 1> counts{};
  double sum_seconds = 0;
  std::size_t newest = 0;  // bucket of the newest delay

  void Add(double seconds);
  std::uint64_t Total() const;

  // Upper bound of the bucket that holds the quantile; 0 when empty.
  double Quantile(double quantile) const;
};

// SizeHistogram - counts of sizes in buckets with fixed upper bounds, the last one +Inf.
// Why here: pipeline fills it, observe exposes it.
struct SizeHistogram {
  static constexpr std::array<std::uint64_t, 12> kUpperBounds = {
      1, 2, 5, 10, 20, 50, 100, 500, 1'000, 10'000, 100'000, 1'000'000};

  std::array<std::uint64_t, kUpperBounds.size() + 1> counts{};
  std::uint64_t sum = 0;

  // Small sizes are the most, so they are found first.
  void Add(std::uint64_t size) {
    std::size_t bucket = 0;
    while (bucket < kUpperBounds.size() && size > kUpperBounds[bucket]) {
      ++bucket;
    }
    ++counts[bucket];
    sum += size;
  }
};

// EventCounters - what is counted since the start and shown as it is: by the pipeline, in the
// snapshot, in metrics and status.
// Why: one struct, so that what is shown is what was counted.
// Thread: a value. Units: as named.
//   Invariant (Pipeline::Accounted): events_received = events_delivered + events_dead_lettered +
//   events_parked + events_skipped + events_discarded + in flight.
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
