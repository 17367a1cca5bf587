// Snapshot - everything that /metrics, /status and `walpost status` show, taken by the loop in one
// go.
// Why: one struct, so that no two places of the product can disagree; readers never touch live
//   state.
// Thread: a value. SnapshotBoard hands the newest one to readers.
// Units: seconds as double only at the metrics' edge; here micro- and milliseconds as named.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/figures.h"
#include "base/lsn.h"
#include "base/state.h"
#include "base/time.h"

namespace walpost::observe {

struct Snapshot;

// History - the last hour, as the status page draws it.
// Why: who is called at night sees at once since when it has been so, with or without a monitoring
//   system.
// Thread: a value; SnapshotBoard guards it.
// Units/limits: a point every 15 s, 240 of them, some 40 bytes each.
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

using base::DelayHistogram;

// The slot's room on the server. Infinite = no limit, absent = not known yet.
struct WalRoom {
  std::optional<double> limit_bytes;       // max_slot_wal_keep_size
  std::optional<double> safe_bytes;        // until the slot may be lost
  std::optional<double> bytes_per_second;  // WAL that the server writes
  std::optional<double> seconds_left;
};

// One line, and when it was; it stays after the trouble is over.
struct Trouble {
  std::string text;  // empty = none since the start
  base::WallTime at;
};

// A counter by two words.
struct LabelledCount {
  std::string first;
  std::string second;
  std::uint64_t count = 0;
};

// The connection of monitor.conninfo.
struct MonitorView {
  bool enabled = false;
  bool up = false;  // the newest look went well
  std::string error;
  base::WallTime last_success;
  std::optional<base::ServerFigures> figures;  // of the newest look; absent when that failed
};

struct Snapshot {
  // identity
  std::string name;
  std::string slot;
  std::string publication;
  std::vector<std::pair<std::string, std::string>> libraries;  // name and version
  // state
  base::State state = base::State::kStarting;
  base::HaltReason halt_reason = base::HaltReason::kSlotMissing;  // when halted
  std::string halt_detail;  // one line: what, where, what to do
  base::WallTime state_since;
  base::WallTime taken_at;
  base::WallTime started_at;
  std::string gap_guard = "off";
  Trouble last_error;  // the newest of all
  // source
  Trouble source_error;
  bool source_connected = false;
  std::uint64_t system_identifier = 0;
  std::uint32_t timeline = 0;
  int server_version = 0;
  std::string database;
  std::string source_host;
  base::Lsn received_lsn;    // last end_lsn or keepalive position seen
  base::Lsn confirmed_lsn;   // last sent as flush
  base::Lsn safe_lsn;        // what may be confirmed
  base::Lsn server_wal_lsn;  // newest position the server reported
  base::WallTime last_frame_at;
  WalRoom wal_room;
  MonitorView monitor;
  // sink
  Trouble sink_error;
  bool sink_connected = false;
  std::vector<base::BrokerFigures> brokers;
  // counters since start
  base::EventCounters counters;
  std::uint64_t parked_keys = 0;  // now
  std::uint64_t duplicates_possible_total = 0;
  std::vector<LabelledCount> reconnects_by_reason;                         // peer, reason
  std::vector<LabelledCount> failed_by_topic;                              // topic, reason
  std::vector<std::pair<std::string, std::uint64_t>> producers_by_reason;  // but for the first
  std::vector<std::pair<std::string, std::uint64_t>> delivered_by_topic;
  // Schema Registry
  std::uint64_t schemas_known = 0;  // or asked for, or rejected
  std::uint64_t schema_look_ups_total = 0;
  std::uint64_t schema_rejections_total = 0;
  std::uint64_t schema_failures_total = 0;
  // in flight
  std::uint64_t in_flight_events = 0;
  std::uint64_t in_flight_bytes = 0;
  std::uint64_t in_flight_bytes_max = 0;
  base::WallTime oldest_undelivered_commit;       // zero = none
  std::vector<base::DeliveredEvent> last_events;  // newest first; of many a sample
  std::vector<std::pair<std::string, DelayHistogram>> stages;

  // What the server has and we have not confirmed; 0 before the first confirmation.
  std::uint64_t LagBytes() const {
    return confirmed_lsn.valid() && server_wal_lsn > confirmed_lsn
               ? server_wal_lsn.value() - confirmed_lsn.value()
               : 0;
  }
};

class SnapshotBoard {
 public:
  void Publish(std::shared_ptr<const Snapshot> snapshot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (snapshot != nullptr) {
      history_.Add(*snapshot);
    }
    newest_ = std::move(snapshot);
  }

  // Null before the first Publish. Shared because a slow reader may hold it while the loop
  // publishes the next.
  std::shared_ptr<const Snapshot> Newest() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return newest_;
  }

  std::deque<HistoryPoint> LastHour() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return history_.points();
  }

 private:
  mutable std::mutex mutex_;
  History history_;
  std::shared_ptr<const Snapshot> newest_;
};

// Rendered - a body that is made once for each snapshot, however many ask for it.
// Why: fifty open pages and a few scrapers ask for the same; what that costs must not grow with
// them.
// Thread: any; who comes while it is being made waits for it.
// Units/limits: no older than kYoungerThan, since it also has figures of the process, which a new
//   snapshot does not bring.
class Rendered {
 public:
  using Render = std::function<std::string(const Snapshot&)>;

  static constexpr std::chrono::milliseconds kYoungerThan{1'000};

  explicit Rendered(Render render) : render_(std::move(render)) {}

  // `snapshot` may be null, before the first: then it is that of an empty one.
  std::string Of(const std::shared_ptr<const Snapshot>& snapshot, base::MonotonicTime now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!made_ || snapshot != snapshot_ || now - made_at_ >= kYoungerThan) {
      body_ = render_(snapshot ? *snapshot : Snapshot());
      made_ = true;
      snapshot_ = snapshot;
      made_at_ = now;
    }
    return body_;
  }

 private:
  const Render render_;
  std::mutex mutex_;
  // Guarded by mutex_.
  bool made_ = false;
  std::string body_;
  std::shared_ptr<const Snapshot> snapshot_;  // what it is of
  base::MonotonicTime made_at_;
};

}  // namespace walpost::observe
