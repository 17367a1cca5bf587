// ServerErrors - what an error of the server means that ended the stream: that the next one asks
// for all values as text, or that the same position fails for ever.
// Why: values come in binary. A type without a binary form ends that stream; as text it can be
//   read, but a bytea is twice as long then, and may be too long for the server. So streams that
//   begin before that transaction get text, and those behind it do not. The server may end without
//   having read that it was confirmed, so only where a stream begins shows that. What fails behind
//   it in text counts when nothing else is waited for.
// Thread: a value.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "base/figures.h"
#include "base/lsn.h"
#include "base/state.h"
#include "base/time.h"

namespace walpost::pipeline {

// May what the server decodes have ended the stream? A server process that is killed says nothing,
// and the others end with 57P02. Class 53 is no memory, or no disk to spill to. Anything else is
// somebody's wish, such as pg_terminate_backend (57P01).
inline bool MayComeFromDecoding(const base::StreamEnd& end) {
  return end.sqlstate.empty() || end.sqlstate == "57P02" || end.sqlstate.substr(0, 2) == "53";
}

class ServerErrors {
 public:
  // The same error at the same position this often is poison_wal.
  static constexpr int kSameErrorMax = 3;

  // A connection whose stream begins up to here asks for text.
  base::Lsn text_until() const { return text_until_; }

  void OnConnected(bool text) {
    text_ = text;
    text_until_ = text ? text_until_ : base::Lsn();
  }

  // The stream ended with `end` while what commits at `reading` was read, and `error` names both.
  // All before `confirmable` may be confirmed. How often it has ended so; 0 = that says nothing
  // yet.
  int OnError(const base::StreamEnd& end, const std::string& error, base::Lsn reading,
              base::Lsn confirmable) {
    if (!text_ && end.no_binary_form) {
      text_until_ = reading;
      return 0;
    }
    if (text_ && reading > text_until_ && confirmable <= text_until_) {
      return 0;  // binary is tried when that is confirmed
    }
    count_ = error == error_ ? count_ + 1 : 1;
    error_ = error;
    reading_ = reading;
    return count_;
  }

  // What committed before `flush` does not come again.
  void OnConfirmed(base::Lsn flush) { count_ = flush > reading_ ? 0 : count_; }

  void Forget() { *this = ServerErrors(); }

 private:
  bool text_ = false;     // the newest connection gets it
  base::Lsn text_until_;  // the commit LSN of what has no binary form; 0/0 = nothing
  std::string error_;
  base::Lsn reading_;
  int count_ = 0;
};

// ServerPings - when the server is asked on a new connection whether it is stopping, and whether
// the slot is still ours.
// Why: a server stops only when all that it has was sent and confirmed, and the stream says so at
//   its very end. Where that end is far away, or nothing is read, only a new connection shows the
//   stop. So it is with the server's giving up this connection: what is read after a pause may be
//   from long ago.
// Thread: loop thread; no clock of its own.
// Source: docs/design.md, facts 6 and 7.
class ServerPings {
 public:
  // While the end of the stream is far away; the first one as late. More often where an answer
  // proves little.
  static constexpr std::chrono::milliseconds kEvery{2'000};
  // A change that the server sends so long after its commit has more behind it.
  static constexpr std::chrono::milliseconds kLate{2'000};
  // After such a change the end counts as far away for this long.
  static constexpr std::chrono::milliseconds kLateFor{10'000};
  // While nothing is read: when a question is open for this long, and no later one is answered, the
  // connection is given up. A proxy may give a server that is stopping no new connections, so
  // nothing would show the stop.
  static constexpr std::chrono::milliseconds kNoAnswerMax{30'000};

  // `proven_for`: how long an answer shows that the slot is ours.
  void OnConnected(std::chrono::milliseconds proven_for) {
    *this = ServerPings();
    every_ = std::min(kEvery, proven_for / 4);
  }

  // The server sent a change of a transaction that committed `age` before, by its own clock.
  void OnChange(std::chrono::microseconds age, base::Now now) {
    if (age >= kLate) {
      late_until_ = now.mono + kLateFor;
    }
  }

  // On each tick of a connection. `caught_up`: with what the server had when it was connected.
  void OnTick(bool paused, bool caught_up, base::Now now) {
    if (paused) {
      ours_until_ = ours_until_.value_or(now.mono);
      paused_at_ = now.mono;
    } else {
      unanswered_since_.reset();
    }
    if (!paused && now.mono - paused_at_ >= every_ && !given_up_) {
      ours_until_.reset();
    }
    if (!ours_until_ && caught_up && now.mono >= late_until_) {
      next_.reset();
    } else if (!next_) {
      next_ = now.mono + every_;
    }
  }

  std::optional<base::PingQuestion> Take(base::Now now) {
    if (!next_ || now.mono < *next_) {
      return std::nullopt;
    }
    next_ = now.mono + every_;
    unanswered_since_ = unanswered_since_.value_or(now.mono);
    return ours_until_ ? base::PingQuestion::kSlot : base::PingQuestion::kServes;
  }

  // To a question that was asked at `asked_at`: of what came later it says nothing.
  void OnAnswer(base::PingAnswer answer, base::MonotonicTime asked_at) {
    // Who may not ask about the slot goes by whether the server answers at all.
    if (ours_until_ && asked_at >= *ours_until_ &&
        (answer == base::PingAnswer::kOurs || answer == base::PingAnswer::kNotSaid)) {
      ours_until_ = asked_at;
      given_up_ = false;
    }
    if (answer != base::PingAnswer::kNone) {
      unanswered_since_.reset();
    }
  }

  // Nothing is read, and nobody has answered for too long. Who asks may still be waiting.
  bool Unanswered(base::Now now) const {
    return unanswered_since_ && now.mono - *unanswered_since_ >= kNoAnswerMax;
  }

  // Nothing has shown for so long that the slot is ours.
  bool Unproven(std::chrono::milliseconds limit, base::Now now) const {
    return ours_until_ && now.mono - *ours_until_ >= limit;
  }

  // From now on what is read proves nothing, only an answer does.
  void GiveUp() { given_up_ = true; }

  bool given_up() const { return given_up_; }

  std::optional<base::MonotonicTime> NextDeadline() const {
    return unanswered_since_ && next_ ? std::min(*next_, *unanswered_since_ + kNoAnswerMax) : next_;
  }

 private:
  std::chrono::milliseconds every_ = kEvery;
  std::optional<base::MonotonicTime> next_;  // absent = the stream itself will show a stop
  base::MonotonicTime late_until_;
  std::optional<base::MonotonicTime> unanswered_since_;  // the first such question was taken
  // Since reading was paused: when it was last known that the slot is ours. Absent = the stream
  // shows it.
  std::optional<base::MonotonicTime> ours_until_;
  base::MonotonicTime paused_at_;
  bool given_up_ = false;
};

}  // namespace walpost::pipeline
