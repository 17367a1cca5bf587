#include "runtime/monitor.h"

#include <mutex>
#include <utility>

#include "postgres/server_watch.h"

namespace walpost::runtime {

struct Monitor::Shared {
  explicit Shared(postgres::ServerWatchOptions options) : watch(std::move(options)) {}

  void Look() {
    absl::StatusOr<base::ServerFigures> seen = watch.Look();
    const std::lock_guard<std::mutex> lock(mutex);
    running = false;
    newest.figures.reset();
    newest.error.clear();
    if (seen.ok()) {
      newest.figures = *std::move(seen);
      newest.last_success =
          std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    } else {
      newest.error = std::string(seen.status().message());
    }
  }

  postgres::ServerWatch watch;  // of the helper's thread
  mutable std::mutex mutex;
  // Guarded by mutex.
  bool running = false;
  Monitored newest;
};

Monitor::Monitor(const RunOptions& options, Helper* helper)
    : interval_(options.monitor.interval), helper_(helper) {
  if (options.monitor.conninfo.empty()) {
    return;
  }
  postgres::ServerWatchOptions watch;
  watch.conninfo = options.monitor.conninfo;
  watch.application_name = options.source.application_name + "-monitor";
  watch.slot = options.source.slot;
  watch.tables = options.source.tables;
  shared_ = std::make_shared<Shared>(std::move(watch));
}

Monitor::~Monitor() = default;

void Monitor::Tick(base::Now now) {
  if (!enabled() || now.mono < next_) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    if (shared_->running) {
      return;
    }
    shared_->running = true;
  }
  next_ = now.mono + interval_;
  helper_->Run(
      Helper::Queue::kMonitor, [shared = shared_] { shared->Look(); }, [] {});
}

std::optional<Monitored> Monitor::Newest() const {
  if (!enabled()) {
    return std::nullopt;
  }
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return shared_->newest;
}

}  // namespace walpost::runtime
