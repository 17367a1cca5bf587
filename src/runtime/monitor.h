// Monitor - looks at the server by SQL every so often, and keeps what it saw last.
// Why: a server that does not answer may take its whole time-out, and the loop must not wait.
// Thread: every call on the loop thread; never blocks.
// Lifetime: within that of the helper.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/figures.h"
#include "base/lsn.h"
#include "base/source_facts.h"
#include "base/time.h"
#include "observe/snapshot.h"
#include "runtime/helper.h"
#include "runtime/options.h"

namespace walpost::runtime {

// WalRate - how fast the server writes WAL, from the positions it reports.
// Why: how long the slot's room lasts is what a person wants to know, not how large it is.
// Thread: a value, no clock.
// Units/limits: over the last kWindow at most, a point every kEvery; nothing before kLeast.
class WalRate {
 public:
  static constexpr std::chrono::minutes kWindow{30};
  static constexpr std::chrono::seconds kEvery{15};
  static constexpr std::chrono::seconds kLeast{60};

  // `position` was true at `now`. A lower one (another server) begins anew.
  void Add(base::MonotonicTime now, base::Lsn position);

  std::optional<double> BytesPerSecond() const;

 private:
  struct Point {
    base::MonotonicTime at;
    base::Lsn position;
  };

  std::deque<Point> points_;  // the last one moves until it is kEvery behind the one before
};

// What is known now. Figures only of the newest look, and only when it went well: old ones would
// calm where nobody knows.
struct Monitored {
  std::optional<base::ServerFigures> figures;
  std::string error;            // of the newest look; empty = it went well
  base::WallTime last_success;  // zero = never
};

class Monitor {
 public:
  // Does nothing with an empty `monitor.conninfo`.
  Monitor(const RunOptions& options, Helper* helper);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  bool enabled() const { return shared_ != nullptr; }

  // Starts the next look when it is due.
  void Tick(base::Now now);

  // Nothing when it is not enabled.
  std::optional<Monitored> Newest() const;

 private:
  struct Shared;
  const std::chrono::milliseconds interval_;
  Helper* const helper_;
  std::shared_ptr<Shared> shared_;
  base::MonotonicTime next_;
};

// ServerView - what the stream and the monitor together say about the slot's room on the server.
// Why: the stream alone knows positions and the limit; only SQL shows what else the server keeps
//   for the slot. Where both know something, the monitor is right.
// Thread: loop thread.
class ServerView {
 public:
  // Fills in `wal_room` and `monitor`, and raises `server_wal_lsn` to what the monitor knows.
  // `facts` are absent while nothing is known of the source, `monitored` when there is no monitor.
  void Complete(const std::optional<base::SourceFacts>& facts,
                const std::optional<Monitored>& monitored, base::Now now,
                observe::Snapshot* snapshot);

 private:
  void TakeMonitored(const Monitored& monitored, observe::Snapshot* snapshot);
  std::optional<double> SafeBytes(const observe::Snapshot& snapshot) const;

  WalRate rate_;
  base::WallTime last_frame_at_;
  base::WallTime last_look_at_;
  std::optional<double> limit_bytes_;
};

}  // namespace walpost::runtime
