// ServerView - what the stream and the monitor together say about the slot's room on the server.
// Why: the stream alone knows positions and the limit; only SQL shows what else the server keeps for
//   the slot. Where both know something, the monitor is right.
// Thread: loop thread.
#pragma once

#include <optional>
#include <string>

#include "base/source_facts.h"
#include "observe/snapshot.h"
#include "runtime/monitor.h"
#include "runtime/wal_rate.h"

namespace walpost::runtime {

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
