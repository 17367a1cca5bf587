#include "runtime/wal_rate.h"

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

}  // namespace walpost::runtime
