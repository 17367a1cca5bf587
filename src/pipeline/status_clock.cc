#include "pipeline/status_clock.h"

#include <algorithm>

namespace walpost::pipeline {

using std::chrono::milliseconds;

void StatusClock::Start(std::int64_t wal_sender_timeout_ms, base::Now now, int doublings) {
  *this = StatusClock();
  if (wal_sender_timeout_ms > 0) {
    server_timeout_ = milliseconds(wal_sender_timeout_ms);
    silence_max_ = server_timeout_ * (std::int64_t{1} << doublings);
    interval_ = std::clamp(server_timeout_ / 3, milliseconds(100), kIntervalMax);
  }
  last_status_ = now.mono;
  last_received_ = now.mono;
}

bool StatusClock::OnKeepalive(base::Lsn wal_end, bool reply_requested, bool undelivered,
                              base::Now now) {
  OnReceived(now);
  if (!reply_requested) {
    return false;
  }
  reply_now_ = true;
  const bool goes_on = wal_end == requests_at_ && now.mono - last_request_ <= kStoppingGapMax;
  if (!undelivered || !goes_on) {
    requests_at_ = wal_end;
    requests_ = 0;
  }
  last_request_ = now.mono;
  ++requests_;
  return undelivered && requests_ >= kStoppingRequests;
}

bool StatusClock::StatusDue(base::Lsn safe, base::Now now) const {
  return reply_now_ || now.mono >= NextDeadline(safe);
}

bool StatusClock::OnStatusTaken(base::Lsn safe, base::Now now) {
  last_status_ = now.mono;
  last_flush_ = safe;
  reply_now_ = false;
  if (!probing_ && now.mono - last_received_ >= SilenceShown() / 2) {
    probing_ = true;
    return true;
  }
  return false;
}

bool StatusClock::Silent(base::Now now) const {
  return probing_ && now.mono - last_received_ >= SilenceShown();
}

bool StatusClock::MayBeGone(base::Now now) const {
  return probing_ && now.mono - last_received_ >= server_timeout_;
}

bool StatusClock::SilentTooLong(base::Now now) const {
  return probing_ && now.mono - last_received_ >= silence_max_;
}

base::MonotonicTime StatusClock::NextDeadline(base::Lsn safe) const {
  if (reply_now_) {
    return last_status_;
  }
  base::MonotonicTime due = last_status_ + (safe > last_flush_ ? kConfirmWithin : interval_);
  if (!probing_) {
    due = std::min(due, last_received_ + SilenceShown() / 2);
  }
  return due;
}

}  // namespace walpost::pipeline
