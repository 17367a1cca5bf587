#include "runtime/monitor.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "postgres/server_watch.h"

namespace walpost::runtime {

void WalRate::Add(base::MonotonicTime now, base::Lsn position) {
  if (!position.valid()) {
    return;
  }
  if (!points_.empty() && position < points_.back().position) {
    points_.clear();
  }
  if (points_.size() >= 2 && now < points_[points_.size() - 2].at + kEvery) {
    points_.back() = {now, position};
  } else {
    points_.push_back({now, position});
  }
  // The oldest one kept is the first that is not younger than the window.
  while (points_.size() > 2 && points_[1].at <= now - kWindow) {
    points_.pop_front();
  }
}

std::optional<double> WalRate::BytesPerSecond() const {
  if (points_.size() < 2 || points_.back().at < points_.front().at + kLeast) {
    return std::nullopt;
  }
  const double seconds =
      std::chrono::duration<double>(points_.back().at - points_.front().at).count();
  return static_cast<double>(points_.back().position.value() - points_.front().position.value()) /
         seconds;
}

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

namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

double Bytes(std::uint64_t value) { return static_cast<double>(value); }

}  // namespace

void ServerView::Complete(const std::optional<base::SourceFacts>& facts,
                          const std::optional<Monitored>& monitored, base::Now now,
                          observe::Snapshot* snapshot) {
  if (facts) {
    limit_bytes_ = facts->wal_keep_bytes ? Bytes(*facts->wal_keep_bytes) : kNoLimit;
  }
  // A position that nobody repeated says nothing about the present.
  bool heard = snapshot->last_frame_at != last_frame_at_;
  last_frame_at_ = snapshot->last_frame_at;
  if (monitored) {
    TakeMonitored(*monitored, snapshot);
    if (snapshot->monitor.figures) {
      heard = heard || monitored->last_success != last_look_at_;
      last_look_at_ = monitored->last_success;
      snapshot->server_wal_lsn =
          std::max(snapshot->server_wal_lsn, snapshot->monitor.figures->wal_lsn);
    }
  }
  if (heard) {
    rate_.Add(now.mono, snapshot->server_wal_lsn);
  }

  observe::WalRoom& room = snapshot->wal_room;
  room.limit_bytes = limit_bytes_;
  room.safe_bytes = SafeBytes(*snapshot);
  room.bytes_per_second = rate_.BytesPerSecond();
  if (room.safe_bytes == kNoLimit || room.safe_bytes == 0.0) {
    room.seconds_left = room.safe_bytes;
  } else if (room.safe_bytes && room.bytes_per_second) {
    room.seconds_left =
        *room.bytes_per_second > 0 ? *room.safe_bytes / *room.bytes_per_second : kNoLimit;
  }
}

void ServerView::TakeMonitored(const Monitored& monitored, observe::Snapshot* snapshot) {
  observe::MonitorView& view = snapshot->monitor;
  view.enabled = true;
  view.error = monitored.error;
  view.last_success = monitored.last_success;
  view.figures = monitored.figures;
  if (view.figures && snapshot->system_identifier != 0 &&
      view.figures->system_identifier != snapshot->system_identifier) {
    view.error = "monitor.conninfo reaches another cluster than source.conninfo: correct it";
    view.figures.reset();
  }
  view.up = view.figures.has_value();
}

std::optional<double> ServerView::SafeBytes(const observe::Snapshot& snapshot) const {
  if (snapshot.monitor.figures && snapshot.monitor.figures->slot) {
    const std::optional<std::uint64_t>& safe = snapshot.monitor.figures->slot->safe_wal_bytes;
    return safe ? Bytes(*safe) : kNoLimit;
  }
  if (!limit_bytes_ || *limit_bytes_ == kNoLimit) {
    return limit_bytes_;
  }
  if (!snapshot.confirmed_lsn.valid()) {
    return std::nullopt;
  }
  const double lag = Bytes(snapshot.server_wal_lsn.value()) - Bytes(snapshot.confirmed_lsn.value());
  return std::max(*limit_bytes_ - std::max(lag, 0.0), 0.0);
}

}  // namespace walpost::runtime
