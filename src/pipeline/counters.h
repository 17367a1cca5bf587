// Counters - what the pipeline counts, per process; read by the runtime for the snapshot.
// Thread: loop thread only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/delay_histogram.h"
#include "base/event_counters.h"
#include "pipeline/recent_events.h"
#include "pipeline/reconnect_reason.h"

namespace walpost::pipeline {

// Where the time of a batch goes, by the event in it that waited longest; see stage_times.h.
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
  // Why a producer was opened: the last one failed, the one that sends one at a time is done, a release was
  // recalled from the last one, its settings no longer did.
  std::uint64_t producers_after_failure = 0;
  std::uint64_t producers_after_recovery = 0;
  std::uint64_t producers_after_recall = 0;
  std::uint64_t producers_for_settings = 0;
  std::array<std::uint64_t, std::size(kAllReconnectReasons)> reconnects_by_reason{};
  DeliveredEvents delivered_by_topic;
  FailedEvents events_failed;
  StageHistograms stages;
  RecentEvents recent;
};

}  // namespace walpost::pipeline
