// Monitor - looks at the server by SQL every so often, and keeps what it saw last.
// Why: a server that does not answer may take its whole time-out, and the loop must not wait.
// Thread: every call on the loop thread; never blocks.
// Lifetime: within that of the helper.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/server_figures.h"
#include "base/time.h"
#include "runtime/helper.h"
#include "runtime/options.h"

namespace walpost::runtime {

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

}  // namespace walpost::runtime
