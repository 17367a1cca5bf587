// The part of Pipeline that answers for one connection after another: whether the source is still the
// history that was read, who may publish, and when to connect anew.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "pipeline/fingerprint.h"
#include "pipeline/pipeline.h"
#include "pipeline/source_change.h"

namespace walpost::pipeline {

using base::HaltReason;
using base::StreamEnd;
using std::chrono::milliseconds;

namespace {

constexpr char kServerStopping[] =
    "the PostgreSQL server is shutting down while events are undelivered: connection closed so "
    "that it can";
constexpr char kServerUnreachable[] =
    "no new connection has reached the PostgreSQL server for 30 s while events wait for Kafka: "
    "connection closed, since it may be shutting down";

// A planned reconnect needs a record that was made since it was due, and that Kafka has taken no longer ago.
constexpr milliseconds kKafkaAnsweredWithin{5'000};

}  // namespace

void Pipeline::OnConnected(const base::SourceFacts& facts, base::Now now) {
  attempt_unanswered_ = false;
  if (phase_ != Phase::kConnecting) {
    stream_command_ = StreamCommand::kClose;  // stopped or halted meanwhile
    return;
  }
  connected_ = true;
  if (facts_ && facts_->system_identifier == facts.system_identifier &&
      facts.BehindTimeline(facts_->timeline)) {
    EndConnection(NotFollowedYet(facts, facts_->timeline), now);
    return;
  }
  std::optional<Halt> change =
      facts_ ? FindSourceChange(*facts_, facts, intake_.seen_lsn()) : std::nullopt;
  if (change) {
    HaltAtOnce(*std::move(change));
    return;
  }
  if (TakenOver(facts)) {
    last_error_ = "another instance went on from the slot meanwhile: beginning anew";
    Disconnect(StreamCommand::kClose);
    ++counters_.reconnects;
    ++counters_.reconnects_by_reason[static_cast<std::size_t>(ReconnectReason::kTakenOver)];
    phase_ = Phase::kYielding;
    dispatcher_.ShutDown();
    return;
  }
  facts_ = facts;
  bool adopted = false;
  // Where somebody has deleted it from Kafka, this process knows it still.
  if (auto remembered = facts.progress ? facts.progress : keeper_.remembered()) {
    const bool forgotten = facts.ForgetOtherLog(&*remembered);
    adopted = KeepSince(*remembered, {remembered->end_lsn, facts.looked_at, remembered->timeline},
                        facts.adoption, &*facts_) ||
              forgotten;
  }
  confirmed_max_ = std::max(confirmed_max_, facts.confirmed_flush_lsn);
  server_wal_lsn_ = std::max(server_wal_lsn_, facts.server_wal_lsn);
  intake_.Start(*facts_);
  safe_at_connect_ = tracker_.safe_lsn();
  undeliverables_.OnConnected(facts);
  dead_letters_.OnConnected(facts);
  keeper_.OnConnected(*facts_, adopted);
  server_errors_.OnConnected(facts.text_values);
  timers_.OnConnected(facts, now);
  pings_.OnConnected(timers_.publish_alone());
  status_clock_.Start(facts.wal_sender_timeout_ms, now, timers_.Doublings(intake_.received_lsn()));
  phase_ = Phase::kStreaming;
  standby_ = reconnecting_as_planned_ = false;
  ever_streamed_ = true;
  auth_failures_ = 0;
  last_error_.clear();  // the same once more is news again
  standby_backoff_.Reset();
  OnPassed(now);
}

// For a reason that passes.
void Pipeline::EndConnection(const std::string& why, base::Now now) {
  Disconnect(StreamCommand::kClose);
  OnStreamEnd(StreamEnd{StreamEnd::Kind::kLost, HaltReason::kProtocolError,
                        absl::UnavailableError(why), "", ""},
              now);
}

// Something of this connection was taken.
void Pipeline::OnPassed(base::Now now) {
  const bool verified = intake_.verified() && !pings_.given_up();
  if (timers_.OnPassed(intake_.connection_lsn(), verified, now)) {
    dispatcher_.Resume();
  }
}

std::optional<base::Progress> Pipeline::known_progress() const { return keeper_.remembered(); }

bool Pipeline::finished() const { return phase_ == Phase::kFinished; }

bool Pipeline::halted() const { return phase_ == Phase::kHalted; }

bool Pipeline::adopting() const { return keeper_.adopting(); }

// Only another client of the slot can have confirmed what this process has not.
bool Pipeline::TakenOver(const base::SourceFacts& facts) const {
  if (!facts_) {
    return false;
  }
  if (keeper_.on()) {
    return facts.progress && !keeper_.IsOurs(*facts.progress);
  }
  return facts.confirmed_flush_lsn > confirmed_max_ && !tracker_.empty();
}

void Pipeline::CheckSilence(base::Now now) {
  if (connected_ && paused_ && pings_.Unanswered(now)) {
    LeaveServer(kServerUnreachable, now);
  }
  if (connected_ && !paused_ && status_clock_.MayBeGone(now)) {
    timers_.OnLeft(now);
  }
  if (connected_ && pings_.Unproven(timers_.publish_alone(), now)) {
    timers_.OnLeft(now);
    pings_.GiveUp();
  }
  const bool silent = connected_ && !paused_ && status_clock_.Silent(now);
  if (silent && status_clock_.SilentTooLong(now)) {
    OnSilence(now);
  } else if (silent != silence_shown_) {
    silence_shown_ = silent;
    last_error_ = silent ? absl::StrFormat(
                               "%s has been silent for a minute although it was asked to reply; "
                               "walpost waits for it, %s",
                               facts_->host,
                               facts_->wal_sender_timeout_ms > 0 ? "for wal_sender_timeout in all"
                                                                 : "as wal_sender_timeout is 0")
                         : "";
  }
}

// It may be dead, or decode for so long without a word, as 13 to 15 do with a large transaction that is
// not published. So at the same position it is given twice the time of before.
void Pipeline::OnSilence(base::Now now) {
  const base::Lsn received = intake_.received_lsn();
  const int silences = timers_.OnSilence(received);
  StreamEnd end{StreamEnd::Kind::kLost, HaltReason::kPoisonWal,
                absl::UnavailableError(absl::StrFormat(
                    "the server has been silent for wal_sender_timeout%s although it was asked to "
                    "reply: connection dropped",
                    silences > 1 ? absl::StrFormat(" times %d", 1 << (silences - 1)) : "")),
                "", ""};
  if (silences >= SourceTimers::kSilencesMax) {
    end.kind = StreamEnd::Kind::kOperator;
    end.status = absl::FailedPreconditionError(absl::StrFormat(
        "the server fell silent %d times after the same position (%s), the last time for %d times "
        "its wal_sender_timeout; see docs/runbook.md, poison_wal",
        silences, received.ToString(), 1 << (silences - 1)));
  }
  Disconnect(StreamCommand::kClose);
  OnStreamEnd(end, now);
}

// Another instance may be given the slot as soon as the server has given up this one's connection. What
// is in flight then waits until the slot is ours again.
void Pipeline::CheckAlone(base::Now now) {
  const std::optional<base::MonotonicTime> until = timers_.alone_until();
  if (!until || now.mono < *until) {
    return;
  }
  timers_.OnAloneForLong();
  dispatcher_.Suspend();
}

// As a process that has just begun.
void Pipeline::ForgetAll() {
  counters_.events_discarded += tracker_.DiscardAll();
  tracker_.ForgetPositions();
  intake_.Forget();
  keeper_.Forget();
  dead_letters_.Forget();
  undeliverables_.Forget();
  facts_.reset();
  timers_.Forget();
  confirmed_lsn_ = confirmed_max_ = base::Lsn();
  server_errors_.Forget();
}

// A publication or table that was replaced behind our back is seen by preflight only: so the stream
// is ended now and then, between two transactions, and begun again at once. Not before it has come
// further than the connection before: a server that has much to read again would never get on. And only
// when Kafka has just taken a record: without an answer of it there is no next connection.
void Pipeline::CheckPlannedReconnect(base::Now now) {
  // As long as it takes a moment, nobody need know.
  reconnecting_as_planned_ =
      reconnecting_as_planned_ && now.mono < connect_at_ + kShowReconnectAfter;
  const std::optional<base::MonotonicTime> due = timers_.planned_at();
  if (phase_ != Phase::kStreaming || !due || now.mono < *due) {
    return;
  }
  const base::MonotonicTime just = now.mono - kKafkaAnsweredWithin;
  if (!keeper_.AcknowledgedSince(*due, just)) {
    keeper_.WriteSince(std::max(*due, just));
    return;
  }
  if (intake_.in_transaction() || (!tracker_.empty() && now.mono < *due + kReconnectPatience)) {
    return;
  }
  ConnectAnew(ReconnectReason::kPlanned, now);
}

void Pipeline::OnPing(base::PingAnswer answer, base::MonotonicTime asked_at, base::Now now) {
  if (!connected_) {
    return;
  }
  if (answer == base::PingAnswer::kStopping) {
    LeaveServer(kServerStopping, now);
  } else if (answer == base::PingAnswer::kNotOurs) {
    EndConnection("the server has given up this connection while reading was paused", now);
    timers_.OnSlotInUse();
  } else {
    const bool given_up = pings_.given_up();
    pings_.OnAnswer(answer, asked_at);
    if (given_up && !pings_.given_up()) {
      timers_.OnProven();
      dispatcher_.Resume();
    }
  }
}

// A walsender whose client cannot confirm never lets its server stop; leaving costs nothing, what is in
// flight stays.
void Pipeline::LeaveServer(const std::string& why, base::Now now) {
  last_error_ = why;
  const Phase phase = phase_;
  Disconnect(StreamCommand::kClose);
  if (phase == Phase::kStreaming) {
    ReconnectAfter(kAfterServerStop, ReconnectReason::kServerStopping, now);
  } else if (phase == Phase::kHalting || phase == Phase::kDraining) {
    HaltNow();
  }
}

// At once, and for nobody's fault.
void Pipeline::ConnectAnew(ReconnectReason reason, base::Now now) {
  Disconnect(StreamCommand::kFinish);
  reconnecting_as_planned_ = true;
  ++counters_.reconnects_by_reason[static_cast<std::size_t>(reason)];
  phase_ = Phase::kIdle;
  connect_at_ = now.mono;
  timers_.OnLeft(now);
}

}  // namespace walpost::pipeline
