#include "pipeline/pipeline.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/log_event.h"

namespace walpost::pipeline {

using base::HaltReason;
using base::StreamEnd;
using std::chrono::milliseconds;

Pipeline::Pipeline(PipelineOptions options, delivery::Sink* sink, base::Now now)
    : options_(std::move(options)),
      schemas_(options_.schema_refresh, options_.schema_backoff, options_.seed + 4),
      dead_letters_(options_, &tracker_, schemas_.table()),
      undeliverables_(options_, &tracker_, &counters_, &dead_letters_, schemas_.table()),
      intake_(options_, &tracker_, &counters_, &undeliverables_, schemas_.table()),
      keeper_(options_, &intake_.known()),
      dispatcher_({options_.sink_backoff, options_.seed + 1, options_.unknown_topic_wait,
                   options_.gather_for, options_.gather_max},
                  &tracker_, sink, &counters_, &undeliverables_, &dead_letters_, &keeper_,
                  schemas_.table()),
      timers_(options_.reconnect_interval),
      source_backoff_(options_.source_backoff, options_.seed + 2),
      standby_backoff_(options_.standby_backoff, options_.seed + 3),
      connect_at_(now.mono) {
  dispatcher_.Start(now);
}

void Pipeline::OnStreamEnd(const StreamEnd& end, base::Now now) {
  const Phase phase = phase_;
  attempt_unanswered_ = false;
  const bool counts = end.kind == StreamEnd::Kind::kLost && connected_ && MayComeFromDecoding(end);
  const int losses = counts ? timers_.OnLost(intake_.seen_lsn(), now) : 0;
  std::optional<Halt> halt = CheckEnd(end, losses);
  reconnecting_as_planned_ = false;
  Disconnect(StreamCommand::kNone);
  if (!end.status.ok()) {
    last_error_ = std::string(end.status.message());
  }
  if (phase == Phase::kHalting || phase == Phase::kDraining) {
    HaltNow();
    return;
  }
  if (phase != Phase::kStreaming && phase != Phase::kConnecting) {
    return;
  }
  if (end.kind == StreamEnd::Kind::kOperator) {
    const bool password_may_be_new = end.reason == HaltReason::kAuthFailed && ever_streamed_;
    if (!password_may_be_new || ++auth_failures_ >= kAuthFailuresMax) {
      halt = Halt{end.reason, std::string(end.status.message())};
    }
  }
  if (halt) {
    halt_ = std::move(halt);
    HaltNow();
    return;
  }
  if (tracker_.safe_lsn() > safe_at_connect_) {
    source_backoff_.Reset();
    safe_at_connect_ = tracker_.safe_lsn();  // once: the attempts that fail from here on back off
  }
  const ReconnectReason reason = ReconnectReasonOf(end, phase == Phase::kConnecting);
  standby_ = end.kind == StreamEnd::Kind::kSlotInUse;
  if (standby_) {
    timers_.OnSlotInUse();
    ReconnectAfter(standby_backoff_.Next(), reason, now);
  } else if (end.kind == StreamEnd::Kind::kFinished) {
    ReconnectAfter(tracker_.empty() ? source_backoff_.Next(milliseconds(1'000)) : kAfterServerStop,
                   reason, now);
  } else {
    ReconnectAfter(source_backoff_.Next(SourceTimers::WaitAfterLosses(losses)), reason, now);
  }
}

void Pipeline::OnFrame(std::string_view bytes, base::Now now) {
  CHECK(want_frame());
  counters_.bytes_received += bytes.size();
  last_frame_at_ = now.wall;
  const absl::StatusOr<pgoutput::Frame> frame = pgoutput::DecodeFrame(bytes);
  if (!frame.ok()) {
    BeginHalt(Halt{HaltReason::kProtocolError, std::string(frame.status().message())}, now);
    return;
  }
  if (const auto* data = std::get_if<pgoutput::XLogData>(&*frame)) {
    status_clock_.OnData(now);
    const delivery::Sequence before = tracker_.next_sequence();
    intake_.TakeTime(data->server_time);
    if (std::optional<Halt> halt = intake_.TakePayload(data->payload, data->start)) {
      OnSourceHalt(*std::move(halt), now);
    } else if (timers_.waiting()) {
      OnPassed(now);
    }
    pings_.OnChange(data->server_time - intake_.last_commit_time(), now);
    completing_ = completing_ && intake_.in_transaction() && !intake_.must_look();
    if (tracker_.next_sequence() != before) {
      dispatcher_.Gather(now);
      CheckDispatcherHalt(now);
    }
    return;
  }
  const auto& keepalive = std::get<pgoutput::Keepalive>(*frame);
  server_wal_lsn_ = std::max(server_wal_lsn_, keepalive.wal_end);
  intake_.TakeTime(keepalive.server_time);
  if (std::optional<Halt> halt = intake_.TakePosition(keepalive.wal_end)) {
    OnSourceHalt(*std::move(halt), now);
    return;
  }
  OnPassed(now);
  looks_.asked_for_position =
      intake_.position_waits() && (looks_.asked_for_position || keepalive.reply_requested);
  reply_wanted_ = reply_wanted_ || keepalive.reply_requested;
  if (status_clock_.OnKeepalive(keepalive.wal_end, keepalive.reply_requested,
                                !tracker_.empty() || keeper_.Late(now), now)) {
    OnPing(base::PingAnswer::kStopping, now.mono, now);
  }
}

void Pipeline::OnBytes(base::Now now) { status_clock_.OnBytes(now); }

void Pipeline::OnQuiet(base::Now now) {
  dispatcher_.OnQuiet(now);
  CheckDispatcherHalt(now);
}

void Pipeline::OnNotice(const std::string& notice) {
  if (base::ReportsSkippedPublication(notice)) {
    // Not drained first and nothing confirmed any more: the positions since then stand behind rows
    // that never came.
    HaltAtOnce(
        Halt{HaltReason::kPublicationMissing,
             absl::StrFormat("the server skipped a publication that is missing at the position "
                             "being read (%s): rows are "
                             "lost from the stream; see docs/runbook.md, publication_missing",
                             notice)});
    return;
  }
  last_error_ = notice;
}

void Pipeline::Tick(base::Now now) {
  dispatcher_.Poll(now);
  CheckDispatcherHalt(now);
  CheckProgress(now);
  CheckEnd(now);
  CheckClosed(now);
  CheckPlannedReconnect(now);
  CheckAlone(now);
  AccountPause(now);
  CheckStall(now);
  CheckSilence(now);
  CheckInvariants();
}

void Pipeline::Stop(base::Now now) {
  if (stop_requested_) {
    return;
  }
  stop_requested_ = true;
  if (phase_ == Phase::kStreaming || phase_ == Phase::kHalting) {
    // Until its commit is read, a transaction cannot be confirmed: its events would be sent again.
    completing_ = phase_ == Phase::kStreaming && intake_.in_transaction() && !intake_.must_look();
    complete_by_ = now.mono + kCompleteWithin;
    phase_ = Phase::kDraining;
    deadline_ = now.mono + options_.shutdown_timeout;
    return;
  }
  if (phase_ != Phase::kStopping) {
    HaltNow();
  }
}

std::optional<SchemaLookUp> Pipeline::TakeSchemaLookUp(base::Now now) {
  if (schemas_.must_forget()) {
    std::vector<envelope::SchemaTable::Ref> in_use = {dead_letters_.schema()};
    for (auto i = tracker_.oldest_unsettled(); i < tracker_.next_sequence(); ++i) {
      if (!tracker_.entry(i).settled) {
        in_use.push_back(tracker_.entry(i).record.schema);
      }
    }
    schemas_.table()->ForgetUnused(in_use);
  }
  return schemas_.Take(now);
}

void Pipeline::OnSchemaAnswers(const SchemaLookUp& look_up, const SchemaAnswers& answers,
                               base::Now now) {
  schemas_.OnAnswers(look_up, answers, now);
  dispatcher_.OnSchemas();
  CheckDispatcherHalt(now);
}

void Pipeline::Resume(base::Now now) {
  schemas_.Resume(now);
  resume_wanted_ = phase_ == Phase::kHalting || (phase_ == Phase::kStopping && !stop_requested_);
  if (phase_ != Phase::kHalted || stop_requested_) {
    return;
  }
  ForgetAll();
  halt_.reset();
  auth_failures_ = 0;
  source_backoff_.Reset();
  phase_ = Phase::kIdle;
  connect_at_ = now.mono;
  ever_streamed_ = false;
  dispatcher_.Start(now);
}

std::optional<base::Lsn> Pipeline::TakeConnect(base::Now now) {
  if (phase_ != Phase::kIdle || attempt_unanswered_ || now.mono < connect_at_ ||
      stream_command_ != StreamCommand::kNone) {
    return std::nullopt;
  }
  phase_ = Phase::kConnecting;
  attempt_unanswered_ = true;
  return intake_.TakeStart();
}

bool Pipeline::want_frame() const {
  if ((phase_ != Phase::kStreaming && !completing_) || !dead_letters_.loaded() ||
      intake_.must_look()) {
    return false;
  }
  if (!intake_.verified()) {
    return true;  // what has to come again takes no memory
  }
  if (keeper_.adopting()) {
    return false;
  }
  const std::size_t retained_bytes = tracker_.retained_bytes() + undeliverables_.retained_bytes() +
                                     intake_.known().retained_bytes();
  // Whether a silent connection is alive shows by its next frame, whatever that is.
  return (timers_.alone() && !pings_.given_up()) ||
         (dispatcher_.caught_up() && dead_letters_.has_room() &&
          retained_bytes < options_.in_flight_bytes_max);
}

std::optional<pgoutput::StandbyStatus> Pipeline::TakeStatus(base::Now now) {
  if (!connected_ || !status_clock_.StatusDue(confirmable(), now)) {
    return std::nullopt;
  }
  pgoutput::StandbyStatus status = MakeStatus(confirmable(), now);
  status.reply_requested = status_clock_.OnStatusTaken(status.flush, now);
  return status;
}

// More may have been acknowledged since it was left, or everything may be forgotten by now.
pgoutput::StandbyStatus Pipeline::FinalStatus(base::Now now) {
  return MakeStatus(std::max(final_lsn_, confirmable()), now);
}

StreamCommand Pipeline::TakeStreamCommand() {
  return std::exchange(stream_command_, StreamCommand::kNone);
}

std::optional<base::PingQuestion> Pipeline::TakePing(base::Now now) {
  return connected_ ? pings_.Take(now) : std::nullopt;
}

base::MonotonicTime Pipeline::NextDeadline() const {
  base::MonotonicTime deadline = dispatcher_.NextDeadline().value_or(base::MonotonicTime::max());
  if (const auto due = keeper_.NextDeadline(tracker_.safe_lsn())) {
    deadline = std::min(deadline, *due);
  }
  if (connected_) {
    deadline = std::min(deadline, dead_letters_.NextDeadline().value_or(deadline));
    deadline = std::min(deadline, status_clock_.NextDeadline(confirmable()));
    deadline = std::min(deadline, pings_.NextDeadline().value_or(deadline));
  }
  deadline = std::min(deadline, look_due().value_or(deadline));
  deadline = std::min(deadline, schemas_.NextDeadline().value_or(deadline));
  if (phase_ == Phase::kIdle && !attempt_unanswered_) {
    deadline = std::min(deadline, connect_at_);
  }
  if (reconnecting_as_planned_) {
    deadline = std::min(deadline, connect_at_ + kShowReconnectAfter);
  }
  deadline = std::min(deadline, timers_.alone_until().value_or(deadline));
  if (phase_ == Phase::kStreaming && timers_.planned_at() && tracker_.empty() &&
      !intake_.in_transaction() && !keeper_.busy()) {
    deadline = std::min(deadline, *timers_.planned_at());
  }
  if (phase_ == Phase::kHalting || phase_ == Phase::kDraining) {
    deadline = std::min(deadline, deadline_);
  }
  if (completing_) {
    deadline = std::min(deadline, complete_by_);
  }
  return deadline;
}

base::State Pipeline::state() const {
  if (stop_requested_) {
    return base::State::kDraining;
  }
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kConnecting:
      if (reconnecting_as_planned_) {
        return base::State::kStreaming;
      }
      if (standby_) {
        return base::State::kStandby;
      }
      return ever_streamed_ ? base::State::kReconnecting : base::State::kStarting;
    case Phase::kYielding:
      return base::State::kReconnecting;
    case Phase::kStreaming:
    case Phase::kHalting:
      return paused_ && paused_accounted_ - paused_since_ >= kShowPausedAfter
                 ? base::State::kBackpressured
                 : base::State::kStreaming;
    case Phase::kStopping:
    case Phase::kHalted:
      return base::State::kHalted;
    case Phase::kDraining:
    case Phase::kFinished:
      return base::State::kDraining;
  }
  return base::State::kStarting;
}

void Pipeline::Disconnect(StreamCommand command) {
  if (connected_ && command != StreamCommand::kNone) {
    stream_command_ = command;
    final_lsn_ = confirmable();
  }
  connected_ = false;
  completing_ = false;
  paused_ = false;
  looks_.under_way = false;
  silence_shown_ = false;
  intake_.Leave();
}

void Pipeline::ReconnectAfter(milliseconds delay, ReconnectReason reason, base::Now now) {
  phase_ = Phase::kIdle;
  connect_at_ = now.mono + delay;
  if (facts_) {
    timers_.OnLeft(now);
  }
  ++counters_.reconnects;
  ++counters_.reconnects_by_reason[static_cast<std::size_t>(reason)];
}

// Everything received before it is delivered and confirmed first, so that a halt costs no
// duplicates.
void Pipeline::BeginHalt(Halt halt, base::Now now) {
  completing_ = false;
  if (phase_ != Phase::kStreaming) {
    return;
  }
  halt_ = std::move(halt);
  halt_boundary_ = tracker_.next_sequence();
  phase_ = Phase::kHalting;
  deadline_ = now.mono + options_.shutdown_timeout;
  CheckEnd(now);
}

// Nothing of it is sent or confirmed any more.
void Pipeline::HaltAtOnce(Halt halt) {
  halt_ = std::move(halt);
  Disconnect(StreamCommand::kClose);
  HaltNow();
}

void Pipeline::OnSourceHalt(Halt halt, base::Now now) {
  if (halt.reason == HaltReason::kTimelineChanged) {
    HaltAtOnce(std::move(halt));
  } else {
    BeginHalt(std::move(halt), now);
  }
}

void Pipeline::HaltNow() {
  Disconnect(StreamCommand::kFinish);
  phase_ = Phase::kStopping;
  dispatcher_.ShutDown();
}

void Pipeline::CheckDispatcherHalt(base::Now now) {
  if (!dispatcher_.halt_at()) {
    return;
  }
  const delivery::Sequence sequence = dispatcher_.halt_at()->sequence;
  if (phase_ == Phase::kHalting && sequence < halt_boundary_) {
    halt_ = dispatcher_.halt_at()->halt;
    halt_boundary_ = sequence;
  } else if (phase_ == Phase::kStreaming) {
    BeginHalt(dispatcher_.halt_at()->halt, now);
    halt_boundary_ = sequence;
    CheckEnd(now);
  } else if (phase_ == Phase::kIdle || phase_ == Phase::kConnecting) {
    // Not connected: there is nobody to confirm to.
    halt_ = dispatcher_.halt_at()->halt;
    HaltNow();
  }
}

// What is before a halt or a stop is done, or its time is over.
void Pipeline::CheckEnd(base::Now now) {
  if (phase_ != Phase::kHalting && phase_ != Phase::kDraining) {
    return;
  }
  completing_ = completing_ && now.mono < complete_by_;
  const bool done = Drained() && keeper_.Settled(tracker_.safe_lsn());
  if (done || now.mono >= deadline_) {
    HaltNow();
  }
}

void Pipeline::CheckClosed(base::Now now) {
  if (!dispatcher_.idle()) {
    return;
  }
  if (phase_ == Phase::kYielding) {
    ForgetAll();
    phase_ = Phase::kIdle;
    connect_at_ = now.mono;
    dispatcher_.Start(now);
  }
  if (phase_ != Phase::kStopping) {
    return;
  }
  counters_.events_discarded += tracker_.DiscardAll();
  dead_letters_.GiveUp();
  undeliverables_.Forget();
  intake_.Forget();
  phase_ = stop_requested_ ? Phase::kFinished : Phase::kHalted;
  if (resume_wanted_) {
    Resume(now);
  }
}

void Pipeline::AccountPause(base::Now now) {
  const bool paused = connected_ && !want_frame();
  if (paused && !paused_) {
    paused_since_ = now.mono;
    paused_accounted_ = now.mono;
  }
  if (paused_) {
    const auto more = std::chrono::duration_cast<milliseconds>(now.mono - paused_accounted_);
    counters_.backpressure_ms += static_cast<std::uint64_t>(more.count());
    paused_accounted_ += more;
    status_clock_.OnPaused(now);
  }
  paused_ = paused;
  if (connected_) {
    timers_.OnReading(!paused, now);
    pings_.OnTick(paused_, timers_.caught_up(), now);
  }
}

std::optional<Halt> Pipeline::CheckEnd(const StreamEnd& end, int losses) {
  if (losses >= SourceTimers::kLossesMax) {
    return Halt{
        HaltReason::kPoisonWal,
        absl::StrFormat("the connection was lost %d times without getting further than %s, "
                        "although the server has more: %s%s; see docs/runbook.md, poison_wal",
                        losses, intake_.seen_lsn().ToString(), std::string(end.status.message()),
                        last_error_.empty() ? "" : " (before: " + last_error_ + ")")};
  }
  if (end.kind != StreamEnd::Kind::kServerError) {
    return std::nullopt;
  }
  // Without a context all errors of a kind look alike: three in a year are no poison.
  const base::Lsn reading =
      intake_.in_transaction() ? intake_.last_commit_lsn() : intake_.received_lsn();
  const std::string where = intake_.in_transaction() ? "commit LSN " + reading.ToString()
                            : end.context.empty()    ? "after " + reading.ToString()
                                                     : "context: " + end.context;
  const int same_errors =
      server_errors_.OnError(end, end.sqlstate + " " + where, reading, confirmable());
  if (same_errors < ServerErrors::kSameErrorMax) {
    return std::nullopt;
  }
  return Halt{HaltReason::kPoisonWal,
              absl::StrFormat("the server failed %d times at the same position (%s): %s; see "
                              "docs/runbook.md, poison_wal",
                              same_errors, where, std::string(end.status.message()))};
}

pgoutput::StandbyStatus Pipeline::MakeStatus(base::Lsn flush, base::Now now) {
  pgoutput::StandbyStatus status;
  status.flush = flush;
  status.apply = status.flush;
  status.write = std::max(intake_.received_lsn(), status.flush);
  status.client_time = now.wall;
  confirmed_lsn_ = status.flush;
  server_errors_.OnConfirmed(status.flush);
  confirmed_max_ = std::max(confirmed_max_, status.flush);
  return status;
}

}  // namespace walpost::pipeline
