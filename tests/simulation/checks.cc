// The oracles of one turn.
#include <algorithm>
#include <chrono>

#include "simulation.h"
#include "violation.h"

namespace walpost::simulation {

using base::HaltReason;
using pipeline::StatusClock;
using std::chrono::milliseconds;

namespace {

constexpr std::size_t kLargestRow = 6'000;  // what one event can be over the limit
constexpr std::size_t kProgressRow = 1'000;
constexpr milliseconds kTurnSlack{250};  // a turn's length beyond a deadline
constexpr milliseconds kServerHeldMax{10'000};
constexpr milliseconds kStopSlack{60'000};  // the sink's slowest close
constexpr int kSpinsMax = 10;

}  // namespace

void Simulation::CheckStatus(const pgoutput::StandbyStatus& status, const char* what) {
  judge_.OnPosition(status.flush, what);
  Require(status.flush >= connection_->last_flush, "%s %s goes back from %s", what,
          status.flush.ToString(), connection_->last_flush.ToString());
  Require(status.apply == status.flush && status.write >= status.flush,
          "%s with write %s, flush %s, apply %s", what, status.write.ToString(),
          status.flush.ToString(), status.apply.ToString());
  const base::Lsn remembered = Remembered(base::Lsn());
  Require(!plan_.remembers() || status.flush <= remembered, "%s %s, but only %s is remembered",
          what, status.flush.ToString(), remembered.ToString());
  if (Delivered()) {
    Require(status.flush >= Confirmable(Complete()),
            "%s %s, but everything up to %s is delivered: it would be sent again", what,
            status.flush.ToString(), Complete().ToString());
  }
}

// How far it is remembered; `none` where it is not. A dead process's record of a timeline that is
// gone may have come late, and counts for more.
base::Lsn Simulation::Remembered(base::Lsn none) const {
  const std::optional<base::Progress>& highest = kafka_.progress().highest();
  base::Lsn remembered = highest ? highest->end_lsn : none;
  for (const base::Progress& record : kafka_.progress().records()) {
    if (highest && record.epoch == highest->epoch && record.timeline == server_.Facts().timeline) {
      remembered = std::max(remembered, record.end_lsn);
    }
  }
  return remembered;
}

// Everything that was handed over.
bool Simulation::Delivered() const {
  return pipeline_->tracker().empty() &&
         pipeline_->counters().events_discarded == connection_->discarded_before &&
         !connection_->walsender->in_transaction();
}

// What was handed over with everything before it. Of a standby, as far as it is known to be of its
// timeline.
base::Lsn Simulation::Complete() const {
  const base::SourceFacts& facts = *pipeline_->facts();
  return facts.in_recovery ? std::min(connection_->complete, facts.looked_lsn)
                           : connection_->complete;
}

// What is remembered of it, by a record of this connection.
base::Lsn Simulation::Confirmable(base::Lsn safe) const {
  if (!plan_.remembers()) {
    return safe;
  }
  const std::optional<base::Progress>& remembered = pipeline_->remembered_progress();
  const std::vector<base::Progress>& records = kafka_.progress().records();
  const auto is_it = [&](const base::Progress& record) {
    return record.epoch == remembered->epoch && record.recorded_at == remembered->recorded_at;
  };
  return remembered && std::any_of(records.rbegin(), records.rend(), is_it)
             ? std::min(safe, remembered->end_lsn)
             : base::Lsn();
}

// A stop that had the time leaves nothing to be sent again.
void Simulation::CheckFinalStatus(const pgoutput::StandbyStatus& status) {
  const bool had_time = now_.mono - stop_since_ < plan_.options.shutdown_timeout;
  if (stopping_ && !pipeline_->halt() && plan_.remembers() && Delivered() && had_time &&
      kafka_.progress_rejections() == 0) {
    Require(status.flush >= Complete(),
            "a stop with time left confirms %s, but everything up to %s is delivered",
            status.flush.ToString(), Complete().ToString());
    // No transaction is open, also not one of the connection before, and what is remembered of it
    // has not been deleted meanwhile: the server alone may forget it.
    if (status.flush >= handed_ && !kafka_.progress().lacks()) {
      judge_.OnCleanStop();
    }
  }
}

void Simulation::CheckCounters() {
  const delivery::Tracker& tracker = pipeline_->tracker();
  const pipeline::Counters& counters = pipeline_->counters();
  Require(counters.events_received == counters.events_delivered + counters.events_dead_lettered +
                                          counters.events_parked + counters.events_skipped +
                                          tracker.in_flight_events() + counters.events_discarded,
          "counters: %u received, but %u delivered, %u dead-lettered, %u parked, %u skipped, %u in "
          "flight, %u discarded",
          counters.events_received, counters.events_delivered, counters.events_dead_lettered,
          counters.events_parked, counters.events_skipped, tracker.in_flight_events(),
          counters.events_discarded);
  Require(counters.events_delivered == judge_.reports(Identity::Kind::kEvent) &&
              counters.events_dead_lettered + counters.events_parked == rows_written_,
          "counters: %u delivered, %u dead-lettered, %u parked, but %u reports and %u rows",
          counters.events_delivered, counters.events_dead_lettered, counters.events_parked,
          judge_.reports(Identity::Kind::kEvent), rows_written_);
}

void Simulation::CheckMemory() {
  const delivery::Tracker& tracker = pipeline_->tracker();
  // The last event that is read may be the first in a new chunk.
  const std::size_t limit =
      plan_.options.in_flight_bytes_max + kLargestRow + base::ChunkArena::kChunkBytes;
  // One that is sent again, and progress, stand beside what is in flight. What is settled behind an
  // unsettled event was in flight, and costs less than then.
  Require(tracker.retained_bytes() <= limit &&
              kafka_.outstanding_bytes() <= tracker.in_flight_bytes() + kLargestRow + kProgressRow,
          "G7: %u bytes retained, %u in flight, %u with the sink, limit %u",
          tracker.retained_bytes(), tracker.in_flight_bytes(), kafka_.outstanding_bytes(), limit);
}

void Simulation::CheckTurn() {
  const delivery::Tracker& tracker = pipeline_->tracker();
  TakeDecisions();
  most_open_ = std::max(most_open_, pipeline_->open_dead_letters() + tracker.in_flight_events());
  if (!foreign_.set_back) {
    judge_.OnPosition(tracker.safe_lsn(), "safe LSN");
  }
  if (halt_seen_ && !pipeline_->halt()) {
    Resumed();  // an operator had it resume before the halt had come to its end
  }
  CheckMemory();
  CheckCounters();
  CheckRemembered();
  CheckEdit();
  if (pipeline_->halt() && !halt_seen_) {
    halt_seen_ = true;
    CheckHalt();
  }
  most_open_ = pipeline_->open_dead_letters() + tracker.in_flight_events();
  Require(pipeline_->connected() == connection_.has_value(), "connected() is %d, the connection %d",
          pipeline_->connected(), connection_.has_value());
  if (connection_) {
    CheckConnection();
  }
  if (stopping_) {
    Require(now_.mono - stop_since_ <= plan_.options.shutdown_timeout + kStopSlack,
            "a stop takes longer than its time-out");
  }
  CheckSpinning();
}

void Simulation::CheckHalt() {
  const pipeline::Halt& halt = *pipeline_->halt();
  Trace("halt:", halt.detail);
  bool expected = false;
  if (halt.reason == HaltReason::kUndeliverableEvent) {
    for (std::uint64_t i = 0; i < server_.events().size(); ++i) {
      const bool named = halt.detail.find("event " + server_.events()[i].id + " ") == 0;
      expected = expected || (named && judge_.blamed(i));
    }
  } else if (halt.reason == HaltReason::kDeadLetterFailed) {
    expected = dead_letters_unusable_ || most_open_ >= plan_.options.dead_letters_max;
  } else if (halt.reason == HaltReason::kPoisonWal) {
    expected = std::any_of(errors_.begin(), errors_.end(), [](const auto& error) {
      return error.second >= pipeline::ServerErrors::kSameErrorMax;
    });
    expected = expected || losses_ >= pipeline::SourceTimers::kLossesMax;
  } else {
    // What a dead process knew of the publication came when the next one had accepted it as it is.
    // And its record may be of the history before a server was set back.
    const bool dead_process_knew =
        (halt.reason == HaltReason::kPublicationMissing && plan_.faults.Has(Fault::edited)) ||
        (halt.reason == HaltReason::kTimelineChanged && plan_.faults.Has(Fault::set_back));
    late_halt_ = dead_process_knew && kafka_.late_progress();
    foreign_halt_ = late_halt_ || IsForeign(halt.reason);
    expected = foreign_halt_ || operator_reason_ == halt.reason;
  }
  Require(expected, "halt %s without a reason: %s", std::string(base::HaltReasonName(halt.reason)),
          halt.detail);
}

void Simulation::CheckConnection() {
  Connection& connection = *connection_;
  Require(!connection.reply_due, "G7: a keepalive that asked for a reply got none in its turn");
  const std::int64_t timeout = plan_.wal_sender_timeout_ms;
  const milliseconds interval =
      timeout == 0 ? StatusClock::kIntervalMax
                   : std::min(StatusClock::kIntervalMax, milliseconds(timeout / 3));
  Require(now_.mono - connection.last_status <= interval + kTurnSlack,
          "G7: no status for longer than %d ms", interval.count());
  const base::Lsn confirmable = std::min(Confirmable(pipeline_->tracker().safe_lsn()), Complete());
  if (confirmable <= connection.last_flush) {
    connection.unreported_since.reset();
  } else if (!connection.unreported_since) {
    connection.unreported_since = now_.mono;
  }
  Require(!connection.unreported_since ||
              now_.mono - *connection.unreported_since <= StatusClock::kConfirmWithin + kTurnSlack,
          "%s is not reported to the server", confirmable.ToString());
  // What it waits for may be on its way, or there.
  const bool waits =
      connection.delayed.empty() && server_.confirmed_flush() < connection.walsender->sent();
  if (server_state_ == ServerState::kStopping && waits) {
    Require(now_.mono - connection.stopping_since <= kServerHeldMax,
            "G7: a server that wants to stop is held");
  }
}

void Simulation::CheckSpinning() {
  const base::MonotonicTime deadline = pipeline_->NextDeadline();
  const bool passed = deadline <= now_.mono && now_.mono >= finishing_until_;
  spins_ = passed && deadline == spinning_at_ ? spins_ + 1 : 0;
  spinning_at_ = deadline;
  Require(
      spins_ <= kSpinsMax,
      "the loop would spin: nothing is done about a deadline that passed (state %s, connected %d, "
      "reading %d, in a transaction %d, %u in flight)",
      std::string(base::StateName(pipeline_->state())), pipeline_->connected(),
      pipeline_->want_frame(), pipeline_->tracker().in_transaction(),
      pipeline_->tracker().in_flight_events());
}

}  // namespace walpost::simulation
