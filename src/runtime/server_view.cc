#include "runtime/server_view.h"

#include <algorithm>
#include <limits>

namespace walpost::runtime {
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
