// Looks - when the catalogs are read again beside a stream, and what for.
// Why: pipeline_look.cc decides by it; docs/design.md, "Edits of publication and tables".
// Thread: a value of Pipeline's.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::pipeline {

struct Looks {
  // Between two looks at the catalogs: whoever brings about many delays events by this each time.
  static constexpr std::chrono::milliseconds kLookEvery{200};
  // Of a standby, for what is confirmed only.
  static constexpr std::chrono::milliseconds kLookAtPositionEvery{2'000};
  // While nothing is confirmed that should be.
  static constexpr std::chrono::milliseconds kLookAfterStall{10'000};
  static constexpr std::chrono::milliseconds kLookWhileStalledEvery{30'000};

  std::uint64_t asked = 0;  // over all connections
  bool under_way = false;   // the last one, for this connection
  bool stops = false;       // nothing is read until it has come to its end
  bool needed = false;      // the connection ends when it fails
  base::Lsn seen_lsn;       // how far the stream was known when it was asked for
  base::MonotonicTime next;
  bool asked_for_position = false;    // by the server, for one that waits for a look
  base::MonotonicTime stalled_since;  // nothing more may be confirmed
  base::Lsn stalled_at;
};

}  // namespace walpost::pipeline
