// StatusClock - when a standby status is due, and whether the server is waiting for us to shut
// down.
// Why: replies go out on a timer of their own, whatever Kafka does, or the server ends the
//   connection; and a server that shuts down keeps asking for a position we cannot confirm, 30,000
//   times a second, until we leave.
// Thread: loop thread; no clock of its own.
// Source: docs/design.md, facts 3, 6 and 7.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::pipeline {

class StatusClock {
 public:
  // A status at least this often; less when wal_sender_timeout asks for it.
  static constexpr std::chrono::milliseconds kIntervalMax{10'000};
  // A position that moved is confirmed this soon.
  static constexpr std::chrono::milliseconds kConfirmWithin{100};
  // This many reply requests at one position, with no change between them, each so soon after the
  // last, with something undelivered: the server is stopping. It asks again as soon as it is
  // answered, so the gap is the connection's round trip; otherwise it asks after half its time-out,
  // and only a silent client.
  static constexpr int kStoppingRequests = 5;
  static constexpr std::chrono::milliseconds kStoppingGapMax{2'000};

  // So long a silence is shown, however long wal_sender_timeout is. Where that is 0, the server
  // never promised to speak; it is asked all the same.
  static constexpr std::chrono::milliseconds kSilenceShown{60'000};

  // A new connection. A silent server is borne for wal_sender_timeout, doubled `doublings` times.
  void Start(std::int64_t wal_sender_timeout_ms, base::Now now, int doublings = 0);

  // Something arrived, and be it a part of a large row on a slow line.
  void OnBytes(base::Now now) { OnReceived(now); }

  // A change arrived: a server that stops has none left to send.
  void OnData(base::Now now) {
    OnReceived(now);
    requests_ = 0;
  }

  // Returns true when this keepalive shows that the server is stopping.
  bool OnKeepalive(base::Lsn wal_end, bool reply_requested, bool undelivered, base::Now now);

  // While reading is paused nothing can arrive: the silence does not count.
  void OnPaused(base::Now now) { OnReceived(now); }

  bool StatusDue(base::Lsn safe, base::Now now) const;

  // The status just taken; true when it should ask the server for a reply (it has been silent for
  // long).
  bool OnStatusTaken(base::Lsn safe, base::Now now);

  // Silent for kSilenceShown, or the whole time-out where that is shorter, although asked.
  bool Silent(base::Now now) const;
  // Silent for wal_sender_timeout as it is, or for a minute where it is 0: the server may have
  // given up this connection, and nobody knows.
  bool MayBeGone(base::Now now) const;
  // Silent for the whole time-out although asked. Never where there is none.
  bool SilentTooLong(base::Now now) const;

  base::MonotonicTime NextDeadline(base::Lsn safe) const;

 private:
  std::chrono::milliseconds SilenceShown() const { return std::min(silence_max_, kSilenceShown); }

  void OnReceived(base::Now now) {
    last_received_ = now.mono;
    probing_ = false;
  }

  std::chrono::milliseconds interval_{kIntervalMax};
  std::chrono::milliseconds server_timeout_ = kSilenceShown;
  std::chrono::milliseconds silence_max_ = std::chrono::hours(1'000'000);  // a hundred years: none
  base::MonotonicTime last_status_;
  base::MonotonicTime last_received_;
  base::Lsn last_flush_;
  bool reply_now_ = false;
  bool probing_ = false;
  base::Lsn requests_at_;
  int requests_ = 0;
  base::MonotonicTime last_request_;
};

}  // namespace walpost::pipeline
