// SourceTimers - what connections to the source are timed by: when the next planned one is due, how
// long it may be published without one, and how long a silent server is borne.
// Why: each of them had a case in which it never let the stream get on, so each has its rule here.
// Thread: loop thread; no clock of its own.
// Source: docs/design.md, "Who may publish" and "Planned reconnects and silence".
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/lsn.h"
#include "base/source_facts.h"
#include "base/time.h"

namespace walpost::pipeline {

class SourceTimers {
 public:
  // The server reads its log again for each connection. No less than this many times what that took
  // lies between two planned ones.
  static constexpr int kCatchUps = 10;
  // Without a live stream it is published for this long, where wal_sender_timeout is 0.
  static constexpr std::chrono::milliseconds kPublishAlone{60'000};
  // Silent for the whole limit after the same position this often, each time for twice as long.
  static constexpr int kSilencesMax = 7;
  // Lost this often without getting further. It may be the network. But where decoding takes more
  // memory than the server has, each attempt ends all of its connections: so there is ever more
  // time between two.
  static constexpr int kLossesMax = 9;
  static constexpr int kLossesWithoutWait = 2;

  // Not read from for this long, a connection may be lost for that. A moment is not enough: one
  // goes by on each connection, for parked keys and for looks at the catalog.
  static constexpr std::chrono::milliseconds kNotReadFor{1'000};

  static std::chrono::milliseconds WaitAfterLosses(int losses) {
    return std::chrono::seconds(losses > kLossesWithoutWait ? 1 << losses : 0);
  }

  // 0 = no planned ones.
  explicit SourceTimers(std::chrono::milliseconds planned_interval)
      : planned_interval_(planned_interval) {}

  void OnConnected(const base::SourceFacts& facts, base::Now now) {
    server_timeout_ = std::chrono::milliseconds(facts.wal_sender_timeout_ms);
    // What a standby has received it decodes only when it is replayed, and that may be paused.
    catch_up_to_ =
        std::max(facts.start_lsn, facts.in_recovery ? facts.looked_lsn : facts.server_wal_lsn);
    caught_up_ = slot_in_use_ = not_read_for_long_ = false;
    not_read_since_.reset();
    connected_at_ = now.mono;
    planned_at_.reset();
  }

  // This connection has come to `passed`, and has shown to be the history that was read
  // (`verified`). True when it may be published again.
  bool OnPassed(base::Lsn passed, bool verified, base::Now now) {
    caught_up_ = caught_up_ || passed >= catch_up_to_;
    if (caught_up_) {
      silences_ = 0;  // it decoded all that can have caused them
    }
    if (!planned_at_ && planned_interval_.count() > 0 && caught_up_) {
      planned_at_ = now.mono + std::max<base::MonotonicTime::duration>(
                                   planned_interval_, (now.mono - connected_at_) * kCatchUps);
    }
    const bool again = verified && alone_since_.has_value();
    if (again) {
      OnProven();
    }
    return again;
  }

  // Without a stream that is known to be ours.
  bool alone() const { return alone_since_.has_value(); }

  // OnPassed has something to find out.
  bool waiting() const { return alone() || !caught_up_; }

  // With what the server had when it was connected.
  bool caught_up() const { return caught_up_; }

  // None = it has not caught up.
  const std::optional<base::MonotonicTime>& planned_at() const { return planned_at_; }

  // The connection is gone, or may be. Not again until something of one has passed.
  void OnLeft(base::Now now) {
    if (!alone_since_) {
      alone_since_ = now.mono;
    }
  }

  // Whoever has the slot may have delivered the same, and more.
  void OnSlotInUse() { slot_in_use_ = true; }

  // Until then it may be published.
  std::optional<base::MonotonicTime> alone_until() const {
    if (!alone_since_ || alone_for_long_) {
      return std::nullopt;
    }
    if (slot_in_use_) {
      return *alone_since_;
    }
    return *alone_since_ + publish_alone();
  }

  // Without a live stream.
  std::chrono::milliseconds publish_alone() const {
    return server_timeout_.count() > 0 ? server_timeout_ : kPublishAlone;
  }

  // The server says that the slot is ours.
  void OnProven() {
    alone_since_.reset();
    alone_for_long_ = slot_in_use_ = false;
  }

  // The time is over: another instance may have the slot.
  void OnAloneForLong() { alone_for_long_ = true; }

  // How often wal_sender_timeout is doubled for a connection that begins with `received` known.
  int Doublings(base::Lsn received) const { return received == silent_at_ ? silences_ : 0; }

  // The limit was reached; how often so far, after this position.
  int OnSilence(base::Lsn received) {
    silences_ = Doublings(received) + 1;
    silent_at_ = received;
    return silences_;
  }

  // Whether this connection is read from here on.
  void OnReading(bool reads, base::Now now) {
    not_read_for_long_ = NotReadForLong(now);
    if (reads) {
      not_read_since_.reset();
    } else if (!not_read_since_) {
      not_read_since_ = now.mono;
    }
  }

  // The connection was lost in a way that may come from decoding, and what was read so far ends at
  // `seen`. How often while the server had more than that; 0 = that is no matter of its log.
  int OnLost(base::Lsn seen, base::Now now) {
    if (caught_up_ || NotReadForLong(now)) {
      return 0;
    }
    losses_ = seen > lost_at_ ? 1 : losses_ + 1;
    lost_at_ = std::max(lost_at_, seen);
    return losses_;
  }

  // As in a process that has just begun.
  void Forget() { *this = SourceTimers(planned_interval_); }

 private:
  // At a stretch, now or before: how such a connection ends says nothing about the log.
  bool NotReadForLong(base::Now now) const {
    return not_read_for_long_ || (not_read_since_ && now.mono - *not_read_since_ >= kNotReadFor);
  }

  std::chrono::milliseconds planned_interval_;
  std::chrono::milliseconds server_timeout_{0};
  base::Lsn catch_up_to_;
  bool caught_up_ = false;
  base::MonotonicTime connected_at_;
  std::optional<base::MonotonicTime> planned_at_;
  std::optional<base::MonotonicTime> alone_since_;
  bool alone_for_long_ = false;
  bool slot_in_use_ = false;
  base::Lsn silent_at_;
  int silences_ = 0;
  std::optional<base::MonotonicTime> not_read_since_;
  bool not_read_for_long_ = false;
  base::Lsn lost_at_;
  int losses_ = 0;
};

}  // namespace walpost::pipeline
