#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "pipeline/history.h"
#include "pipeline/pipeline.h"

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

// A planned reconnect needs a record that was made since it was due, and that Kafka has taken no
// longer ago.
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

// It may be dead, or decode for so long without a word, as 13 to 15 do with a large transaction
// that is not published. So at the same position it is given twice the time of before.
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

// Another instance may be given the slot as soon as the server has given up this one's connection.
// What is in flight then waits until the slot is ours again.
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
// further than the connection before: a server that has much to read again would never get on. And
// only when Kafka has just taken a record: without an answer of it there is no next connection.
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

// A walsender whose client cannot confirm never lets its server stop; leaving costs nothing, what
// is in flight stays.
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

// Before the end: whatever can be delivered is.
bool Pipeline::Drained() const {
  if (phase_ == Phase::kHalting) {
    return tracker_.oldest_unsettled() >= halt_boundary_;
  }
  const bool stuck =
      dispatcher_.halt_at() && tracker_.oldest_unsettled() >= dispatcher_.halt_at()->sequence;
  return phase_ == Phase::kDraining && ((tracker_.empty() && !completing_) || stuck);
}

void Pipeline::OnDeadLetterReply(DeadLetterReply reply, base::Now now) {
  DeadLetterOutcome outcome;
  std::optional<Halt> halt = dead_letters_.OnReply(std::move(reply), now, &outcome);
  for (const delivery::Sequence sequence : outcome.written) {
    undeliverables_.OnWritten(sequence);
    counters_.last_delivered_at = now.wall;
  }
  for (const delivery::Sequence sequence : outcome.given_back) {
    undeliverables_.GiveBack(sequence);
  }
  if (!outcome.given_back.empty()) {
    dispatcher_.OfferAgain();
  }
  if (!dead_letters_.trouble().empty()) {
    last_error_ = dead_letters_.trouble();
  }
  dispatcher_.Pump();
  CheckDispatcherHalt(now);
  if (!halt) {
    return;
  }
  if (phase_ == Phase::kStreaming) {
    OnSourceHalt(*std::move(halt), now);
  } else if (phase_ == Phase::kIdle || phase_ == Phase::kConnecting) {
    halt_ = std::move(halt);
    HaltNow();
  } else if (halt->reason == base::HaltReason::kTimelineChanged &&
             (phase_ == Phase::kHalting || phase_ == Phase::kDraining)) {
    HaltAtOnce(*std::move(halt));  // nothing more is delivered of what another history has
  }
}

void Pipeline::CheckProgress(base::Now now) {
  intake_.Settle(tracker_.safe_lsn());
  keeper_.Tick(tracker_.safe_lsn(), dead_letters_.written_rows(), reply_wanted_ || Drained(), now);
  reply_wanted_ = false;
  // Without progress the server may fall back to what it has on its disk.
  dead_letters_.OnConfirmable(options_.progress_topic.empty() && facts_
                                  ? std::min(confirmable(), facts_->restart_lsn)
                                  : confirmable());
  dead_letters_.Tick(now);
  dispatcher_.SubmitOwn(now);
  if (phase_ != Phase::kStreaming) {
    return;
  }
  if (auto halt = keeper_.Unwritten(counters_.last_delivered_at)) {
    BeginHalt(*std::move(halt), now);
  }
}

namespace {

// The next connection's preflight sees the same.
constexpr char kUnseen[] = "the catalogs could not be read while streaming: ";

}  // namespace

// Rows that were inserted while a table was out of the publication never come. To confirm what is
// behind them could lose them, so the transaction stays open until the catalogs show that nothing
// was edited.
std::optional<base::MonotonicTime> Pipeline::look_due() const {
  if (!connected_ || looks_.under_way || phase_ != Phase::kStreaming) {
    return std::nullopt;
  }
  if (intake_.must_look()) {
    return looks_.next;
  }
  if (!intake_.position_waits()) {
    // Whoever waits for this stream to confirm says so in the server's settings only: its commits,
    // when walpost has become a synchronous standby.
    return stalled() ? std::optional(std::max(
                           looks_.stalled_since + Looks::kLookAfterStall,
                           looks_.next - Looks::kLookEvery + Looks::kLookWhileStalledEvery))
                     : std::nullopt;
  }
  // Who asks may be waiting for it to be confirmed, so as to shut down.
  return looks_.asked_for_position ? looks_.next
                                   : looks_.next - Looks::kLookEvery + Looks::kLookAtPositionEvery;
}

// Something waits for the sink: an event, or progress that was delivered and is not noted.
bool Pipeline::stalled() const {
  return connected_ && (!tracker_.empty() || confirmable() < tracker_.safe_lsn());
}

void Pipeline::CheckStall(base::Now now) {
  if (!stalled() || confirmable() != looks_.stalled_at) {
    looks_.stalled_at = confirmable();
    looks_.stalled_since = now.mono;
  }
}

std::optional<std::uint64_t> Pipeline::TakeLook(base::Now now) {
  const std::optional<base::MonotonicTime> due = look_due();
  if (!due || now.mono < *due) {
    return std::nullopt;
  }
  looks_.under_way = true;
  looks_.stops = intake_.must_look();
  looks_.needed = looks_.stops || intake_.position_waits();
  looks_.asked_for_position = false;
  looks_.seen_lsn = intake_.seen_lsn();
  return ++looks_.asked;
}

void Pipeline::OnLooked(std::uint64_t look, const std::variant<base::SourceFacts, StreamEnd>& seen,
                        base::Now now) {
  looks_.next = now.mono + Looks::kLookEvery;
  if (look != looks_.asked || !looks_.under_way) {
    return;  // of a connection that has ended
  }
  looks_.under_way = false;
  if (phase_ != Phase::kStreaming) {
    return;  // what is left to do needs no further frame
  }
  if (const auto* end = std::get_if<StreamEnd>(&seen)) {
    if (end->kind == StreamEnd::Kind::kOperator && end->reason != HaltReason::kAuthFailed) {
      BeginHalt(Halt{end->reason, std::string(end->status.message())}, now);
    } else if (looks_.needed || intake_.must_look()) {
      EndConnection(kUnseen + std::string(end->status.message()), now);
    }
    return;
  }
  const auto& facts = std::get<base::SourceFacts>(seen);
  if (facts_->in_recovery && facts.timeline > facts_->timeline) {
    // The next connection says where the timeline of before ended. Nothing behind that was taken.
    ConnectAnew(ReconnectReason::kPromoted, now);
    last_error_ = absl::StrFormat(
        "%s, a standby, went from timeline %u to %u while it was read: connecting anew", facts.host,
        facts_->timeline, facts.timeline);
    return;
  }
  if (intake_.must_look() && !looks_.stops) {
    return;  // it was begun before
  }
  if (facts.timeline != facts_->timeline || facts.in_recovery != facts_->in_recovery ||
      (intake_.must_look() && facts.looked_lsn <= intake_.last_commit_lsn())) {
    EndConnection(absl::StrFormat("%s%s is not the server that is streamed from, or behind it",
                                  kUnseen, facts.host),
                  now);
    return;
  }
  // What came meanwhile, beside a look that stops nothing, was not there yet when its facts were
  // read.
  if (std::optional<Halt> halt = FindSourceChange(*facts_, facts, looks_.seen_lsn)) {
    OnSourceHalt(*std::move(halt), now);
    return;
  }
  base::Fingerprint looked = facts;
  KeepSince(*facts_, base::Since(), facts_->adoption, &looked);
  static_cast<base::Fingerprint&>(*facts_) = looked;
  facts_->text_types = facts.text_types;
  keeper_.OnLooked(looked);
  if (std::optional<Halt> halt = intake_.OnLooked(*facts_)) {
    OnSourceHalt(*std::move(halt), now);
  } else {
    OnPassed(now);
  }
}

const std::optional<Halt>& Pipeline::halt() const { return halt_; }

const Counters& Pipeline::counters() const { return counters_; }

const delivery::Tracker& Pipeline::tracker() const { return tracker_; }

const std::optional<base::SourceFacts>& Pipeline::facts() const { return facts_; }

std::size_t Pipeline::parked_keys() const { return dead_letters_.parked_keys(); }

const SchemaLookUps& Pipeline::schemas() const { return schemas_; }

base::Lsn Pipeline::received_lsn() const { return intake_.received_lsn(); }

base::Lsn Pipeline::text_until() const { return server_errors_.text_until(); }

base::Lsn Pipeline::confirmed_lsn() const { return confirmed_lsn_; }

base::Lsn Pipeline::server_wal_lsn() const { return server_wal_lsn_; }

base::WallTime Pipeline::last_frame_at() const { return last_frame_at_; }

bool Pipeline::connected() const { return connected_; }

bool Pipeline::dead_letters_idle() const { return dead_letters_.idle(); }

std::optional<Decision> Pipeline::TakeDecision() { return undeliverables_.TakeDecision(); }

std::uint64_t Pipeline::open_dead_letters() const { return dead_letters_.open_rows(); }

std::optional<DeadLetterRequest> Pipeline::TakeDeadLetterRequest(base::Now now) {
  if (!connected_) {
    return std::nullopt;
  }
  return dead_letters_.TakeRequest(
      now, [this](delivery::Sequence sequence) { return undeliverables_.RowOf(sequence); });
}

base::Lsn Pipeline::confirmable() const {
  // On its way to where the stream begins the server reports positions as well. In a history that
  // is not known to be ours there may be events before them that it does not send.
  if (!intake_.verified() || (facts_ && intake_.connection_lsn() < facts_->start_lsn)) {
    return {};
  }
  return std::min(keeper_.Confirmable(tracker_.safe_lsn()), intake_.connection_lsn());
}

EventReference Pipeline::OldestInFlight() const {
  return undeliverables_.Reference(tracker_.oldest_unsettled());
}

}  // namespace walpost::pipeline
