// Counters - what the pipeline counts, per process; read by the runtime for the snapshot.
// Thread: loop thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/figures.h"
#include "base/state.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"

namespace walpost::pipeline {

// ReconnectReason - why a connection to the source ended, or was not made, and another is tried.
enum class ReconnectReason {
  kConnectFailed,   // an attempt failed
  kLoginRejected,   // after it has streamed once: passwords are rotated
  kSlotInUse,       // another instance streams
  kLost,            // the connection
  kServerError,     // an error of the server ended the stream
  kServerStopping,  // left, so that the server can shut down, or ended by it
  kTakenOver,       // another instance went on meanwhile: everything in memory was given up
  kPlanned,         // to run preflight again
  kPromoted,        // a standby that is read is on another timeline now
};

inline constexpr ReconnectReason kAllReconnectReasons[] = {
    ReconnectReason::kConnectFailed, ReconnectReason::kLoginRejected,
    ReconnectReason::kSlotInUse,     ReconnectReason::kLost,
    ReconnectReason::kServerError,   ReconnectReason::kServerStopping,
    ReconnectReason::kTakenOver,     ReconnectReason::kPlanned,
    ReconnectReason::kPromoted};

// snake_case, as in the metrics.
std::string_view ReconnectReasonName(ReconnectReason reason);

// Of an end that is no halt; `connecting`: of an attempt.
ReconnectReason ReconnectReasonOf(const base::StreamEnd& end, bool connecting);

// RecentEvents - some of the last events that Kafka has taken, newest first, for people to look at.
// Why: to note an event costs several times what it costs to count it. So in each window of time
//   only the first few are noted, and the one that leaves nothing in flight: with few events that
//   is each, and when it falls silent the last one is there.
// Thread: one owner.
// Units/limits: kKept events; of id and type at most kTextMax bytes.
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

// Where the time of a batch goes, by the event in it that waited longest; see StageTimes.
struct StageHistograms {
  base::DelayHistogram source;   // from its commit until it was taken from the stream
  base::DelayHistogram queue;    // from there until it is with the producer
  base::DelayHistogram produce;  // from there until the batch is acknowledged
};

// Events that could not be delivered, whatever became of them.
struct FailedEvents {
  // Topics come from rows; later ones share a row.
  static constexpr std::size_t kRowsMax = 100;

  struct Row {
    std::string topic;
    std::string reason;
    std::uint64_t count = 0;
  };

  void Add(std::string_view topic, std::string_view reason);

  std::vector<Row> rows;
};

// Events that Kafka has taken. A topic is shown from then on: events that it does not take are not
// shown by topics that they made up, and those cannot use up the names.
class DeliveredEvents {
 public:
  // Topics come from rows; later ones share the first row.
  static constexpr std::size_t kTopicsMax = 1'000;
  using Rows = std::vector<std::pair<std::string, std::uint64_t>>;

  void Add(std::string_view topic);

  const Rows& rows() const { return rows_; }

 private:
  std::size_t RowOf(std::string_view topic);

  Rows rows_{{"(other)", 0}};
  absl::flat_hash_map<std::string, std::size_t> row_by_topic_;  // of those that have their own
  std::size_t last_row_ = 0;
};

struct Counters : base::EventCounters {
  // Why a producer was opened: the last one failed, the one that sends one at a time is done, a
  // release was recalled from the last one, its settings no longer did.
  std::uint64_t producers_after_failure = 0;
  std::uint64_t producers_after_recovery = 0;
  std::uint64_t producers_after_recall = 0;
  std::uint64_t producers_for_settings = 0;
  std::array<std::uint64_t, std::size(kAllReconnectReasons)> reconnects_by_reason{};
  DeliveredEvents delivered_by_topic;
  FailedEvents events_failed;
  StageHistograms stages;
  RecentEvents recent;

  // The sink has the event, which `tracker` still holds.
  void OnDelivered(const delivery::Tracker& tracker, const delivery::Tracker::Entry& entry,
                   delivery::PartitionOffset where, base::WallTime now);
};

// StageTimes - where the time between a commit and its acknowledgement goes: to us, through us, or
// through Kafka.
// Why: one delay shows that something is slow, but not which side.
// How: one sample of each stage for each batch that goes to the producer, of the event that waited
//   longest; nothing is done for a single event.
// Thread: loop thread.   Lifetime: `counters` must outlive it.
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
