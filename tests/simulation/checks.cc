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
constexpr milliseconds kTurnSlack{250};     // a turn's length beyond a deadline
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
  const bool delivered = pipeline_->tracker().empty() &&
                         pipeline_->counters().events_discarded == connection_->discarded_before;
  if (delivered && !connection_->walsender->in_transaction()) {
    Require(status.flush >= connection_->complete,
            "%s %s, but everything up to %s is delivered: it would be sent again", what,
            status.flush.ToString(), connection_->complete.ToString());
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
              counters.events_dead_lettered == judge_.reports(Identity::Kind::kLetter) &&
              counters.events_parked == judge_.reports(Identity::Kind::kParked),
          "counters: %u delivered, %u dead-lettered, %u parked, but %u, %u and %u reports",
          counters.events_delivered, counters.events_dead_lettered, counters.events_parked,
          judge_.reports(Identity::Kind::kEvent), judge_.reports(Identity::Kind::kLetter),
          judge_.reports(Identity::Kind::kParked));
}

void Simulation::CheckTurn() {
  const delivery::Tracker& tracker = pipeline_->tracker();
  TakeDecisions();
  parked_keys_ = std::max(parked_keys_, pipeline_->parked_keys());
  judge_.OnPosition(tracker.safe_lsn(), "safe LSN");
  // A letter is larger than its event.
  const bool letters = plan_.options.on_undeliverable != pipeline::OnUndeliverable::kHalt;
  const std::size_t limit = plan_.options.in_flight_bytes_max * (letters ? 3 : 1) + kLargestRow;
  // And one that is sent again stands beside what is in flight.
  const std::size_t with_sink = limit + (letters ? kLargestRow : 0);
  Require(tracker.in_flight_bytes() <= limit && kafka_.outstanding_bytes() <= with_sink,
          "G7: %u bytes in flight, %u with the sink, limit %u", tracker.in_flight_bytes(),
          kafka_.outstanding_bytes(), plan_.options.in_flight_bytes_max);
  CheckCounters();
  if (pipeline_->halt() && !halt_seen_) {
    halt_seen_ = true;
    CheckHalt();
  }
  parked_keys_ = pipeline_->parked_keys();
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
    expected = letters_unreadable_ || judge_.letter_refused() ||
               parked_keys_ >= plan_.options.park_keys_max;
  } else if (halt.reason == HaltReason::kPoisonWal) {
    expected = std::any_of(errors_.begin(), errors_.end(), [](const auto& error) {
      return error.second >= pipeline::Pipeline::kSameErrorMax;
    });
  } else {
    expected = operator_reason_ == halt.reason;
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
  if (pipeline_->tracker().safe_lsn() <= connection.last_flush) {
    connection.untold_since.reset();
  } else if (!connection.untold_since) {
    connection.untold_since = now_.mono;
  }
  Require(!connection.untold_since ||
              now_.mono - *connection.untold_since <= StatusClock::kConfirmWithin + kTurnSlack,
          "safe LSN %s is not told to the server", pipeline_->tracker().safe_lsn().ToString());
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
