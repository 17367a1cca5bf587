// What happens to walpost: the load, the faults, and the end of the faults.
#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "simulation.h"
#include "violation.h"

namespace walpost::simulation {

using base::HaltReason;
using base::StreamEnd;
using std::chrono::milliseconds;

void Simulation::World() {
  if (now_.mono >= next_write_ && server_state_ == ServerState::kUp) {
    for (std::uint64_t i = random_.Between(1, 4); i > 0 && server_.written() < plan_.transactions;
         --i) {
      server_.WriteTransaction(now_.wall);
      if (!server_.broken().valid() && Happens(Fault::poison_wal, 50)) {
        server_.BreakNextTransaction();
        Trace("a transaction cannot be decoded:", server_.broken().ToString());
      }
    }
    if (!healed_ && random_.Chance(200)) {
      server_.WriteOther();
    }
    next_write_ =
        now_.mono + milliseconds(random_.Chance(700) ? random_.Below(20) : random_.Below(3'000));
  }
  if (random_.Chance(50)) {
    server_.Checkpoint();
  }
  if (Happens(Fault::set_back, 30) && !foreign_.any()) {
    server_.TakeCopy();
  }
  kafka_.Advance(now_);
  ArriveStatuses();
  if (server_.adoption() == ModelPostgres::Adoption::kPending && kafka_.progress().newest() &&
      kafka_.progress().newest()->tables.size() == server_.Facts().tables.size()) {
    server_.FinishAdoption();
    Trace("its adoption is remembered");
  }
  if (connection_ && !connection_->cut && pipeline_->connected() && !pipeline_->adopting()) {
    server_.OnAccepted();
  }
  Operator();
  if (!healed_) {
    ServerFaults();
    ForeignHands();
    TakeOver();
    WalpostFaults();
  }
  if (server_state_ == ServerState::kDown && now_.mono >= server_back_at_) {
    server_state_ = ServerState::kUp;
    Trace("server is up");
  }
  if (server_state_ == ServerState::kStopping && !connection_) {
    ServerDown();
  }
  FinishConnecting();
  if (pipeline_ == nullptr && now_.mono >= recover_at_) {
    StartProcess();
  }
}

bool Simulation::Happens(Fault fault, unsigned per_thousand) {
  return plan_.faults.Has(fault) && !healed_ &&
         fault_random_[static_cast<std::size_t>(fault)].Chance(per_thousand);
}

void Simulation::ServerFaults() {
  const auto happens = [this](Fault fault, unsigned per_thousand) {
    return Happens(fault, per_thousand);
  };
  if (happens(Fault::connection_loss, 20) && connection_) {
    LoseConnection(StreamEnd::Kind::kLost, "connection reset by peer");
  }
  if (happens(Fault::server_crash, 10) && server_state_ != ServerState::kDown) {
    LoseConnection(StreamEnd::Kind::kLost, "server crashed");
    server_.Crash();
    ServerDown();
  }
  if (happens(Fault::failover, 5) && server_state_ != ServerState::kDown) {
    LoseConnection(StreamEnd::Kind::kLost, "failover");
    server_.Failover();
    ServerDown();
  }
  if (happens(Fault::promoted, 20) && server_.in_recovery() && server_state_ == ServerState::kUp) {
    server_.Promote();
    Trace("the standby is promoted at", server_.wal_end().ToString());
  }
  if (happens(Fault::silent_loss, 20)) {
    LoseSilently();
  }
  const bool lost = connection_ && connection_->lost;  // it would hold up a stop
  if (happens(Fault::server_stop, 10) && server_state_ == ServerState::kUp && !lost) {
    StopServer();
  }
  if (happens(Fault::server_error, 15) && connection_ && !connection_->end) {
    ServerError();
  }
  if (happens(Fault::operator_halt, 5) && !operator_reason_) {
    constexpr std::array kReasons = {HaltReason::kSlotMissing, HaltReason::kSlotInvalidated,
                                     HaltReason::kAuthFailed, HaltReason::kPublicationMissing};
    operator_reason_ = kReasons[random_.Below(kReasons.size())];
    LoseConnection(StreamEnd::Kind::kLost, "an operator did something");
  }
}

void Simulation::WalpostFaults() {
  if (pipeline_ == nullptr) {
    return;
  }
  if (!stopping_ && Happens(Fault::walpost_stop, 10)) {
    Trace("walpost has to stop");
    stopping_ = true;
    stop_since_ = now_.mono;
    pipeline_->Stop(now_);
  }
  if (Happens(Fault::walpost_stop, 10) && !pipeline_->halted()) {
    pipeline_->Resume(now_);  // means nothing, or is remembered until a halt has come to its end
  }
  if (Happens(Fault::walpost_crash, 10)) {
    CrashProcess();
  }
}

void Simulation::CrashProcess() {
  Trace("walpost crashes");
  DropConnection(/*slot_stays_taken=*/true);
  connecting_.reset();
  kafka_.Abandon();
  AbandonStatements();
  schema_answer_.reset();
  look_answer_.reset();
  pipeline_.reset();
  recover_at_ = now_.mono + milliseconds(random_.Below(2'000));
}

void Simulation::SeeToProcess() {
  if (pipeline_->finished()) {
    Trace("walpost ended");
    connecting_.reset();
    pipeline_.reset();
    recover_at_ = now_.mono + milliseconds(random_.Below(2'000));
    return;
  }
  if (!pipeline_->halted()) {
    return;
  }
  if (recover_at_ == base::MonotonicTime()) {
    judge_.OnMemoryLost();
    accepted_.reset();
    handed_ = base::Lsn();
    recover_at_ = now_.mono + milliseconds(random_.Below(3'000));
  }
  if (now_.mono < recover_at_) {
    return;
  }
  Trace("the halt is seen to");
  kafka_.TakePoison();
  operator_reason_.reset();
  server_.MendTransaction();
  SeeToForeignHands();
  if (random_.Chance(500)) {
    Resumed();
    pipeline_->Resume(now_);
  } else {
    pipeline_.reset();  // restarted
  }
}

// It begins as a new process would.
void Simulation::Resumed() {
  judge_.OnMemoryLost();
  accepted_.reset();
  handed_ = base::Lsn();
  recover_at_ = base::MonotonicTime();
  halt_seen_ = false;
  errors_.clear();
  losses_ = 0;
  dead_letters_unusable_ = false;
}

void Simulation::StopServer() {
  server_state_ = ServerState::kStopping;
  Trace("server stops");
  if (connection_) {
    connection_->stopping_since = now_.mono;
  } else {
    ServerDown();
  }
}

void Simulation::ServerDown() {
  server_state_ = ServerState::kDown;
  server_back_at_ = now_.mono + milliseconds(random_.Between(10, 3'000));
  slot_free_at_ = server_back_at_;
  if (connection_ && connection_->lost) {
    connection_->lost->given_up_at = server_back_at_;
  }
  if (random_.Chance(500)) {
    server_.Crash();  // 13 to 16 forget what was confirmed since the last checkpoint
  }
  if (!foreign_.any() && Happens(Fault::promoted, 700)) {
    server_.BecomeStandby();
  }
}

void Simulation::LoseConnection(StreamEnd::Kind kind, const std::string& why) {
  if (!connection_ || connection_->end) {
    return;
  }
  Trace("connection:", why);
  StreamEnd end;
  end.kind = kind;
  end.status = absl::UnavailableError(why);
  connection_->end = std::move(end);
}

void Simulation::ServerError() {
  const Walsender& walsender = *connection_->walsender;
  const std::string place = "associated LSN " + walsender.sent().ToString();
  // Errors outside the output plugin carry no context.
  const bool context = walsender.failed() || random_.Chance(500);
  LoseConnection(StreamEnd::Kind::kServerError, "division by zero, " + place);
  connection_->end->sqlstate = walsender.failed() ? "22012" : "XX000";
  connection_->end->context = context ? place : "";
}

void Simulation::ArriveStatuses() {
  if (!connection_ || connection_->cut || Happens(Fault::status_delay, 800)) {
    return;
  }
  for (const base::Lsn flush : connection_->delayed) {
    server_.Confirm(flush);
  }
  connection_->delayed.clear();
}

void Simulation::DropConnection(bool slot_stays_taken) {
  if (!connection_) {
    return;
  }
  // What was sent arrives, unless the connection is cut.
  if (!connection_->end || random_.Chance(500)) {
    ArriveStatuses();
  }
  if (connection_->lost) {
    slot_free_at_ = std::max(slot_free_at_, connection_->lost->given_up_at);
  }
  connection_.reset();
  if (slot_stays_taken && plan_.faults.Has(Fault::slot_in_use) && !healed_) {
    slot_free_at_ = std::max(slot_free_at_, now_.mono + milliseconds(random_.Below(3'000)));
  }
}

void Simulation::FinishConnecting() {
  if (!connecting_ || now_.mono < connected_at_) {
    return;
  }
  const Attempt attempt = *std::exchange(connecting_, std::nullopt);
  if (const std::optional<StreamEnd> rejected = RejectConnect()) {
    Trace("connect:", std::string(rejected->status.message()));
    pipeline_->OnStreamEnd(*rejected, now_);
    return;
  }
  base::SourceFacts facts = server_.Facts();
  if (const std::optional<StreamEnd> rejected = Guard(attempt.known, &facts)) {
    Trace("guard:", std::string(rejected->status.message()));
    pipeline_->OnStreamEnd(*rejected, now_);
    return;
  }
  if (facts.progress && facts.tables.size() > facts.progress->tables.size()) {
    facts.adoption = server_.BeginAdoption(*facts.progress, now_.wall);
    Trace("a table is adopted at", facts.adoption.since.lsn.ToString());
  }
  const std::optional<base::Progress>& progress = facts.progress;
  const base::Lsn remembered = progress ? progress->FirstKnown() : base::Lsn();
  facts.start_lsn = std::max({attempt.start, facts.confirmed_flush_lsn, remembered});
  connection_.emplace();
  connection_->walsender = std::make_unique<Walsender>(&server_, facts.start_lsn, &random_);
  const bool comes_again = facts.start_lsn == std::max(attempt.start, remembered);
  connection_->known =
      std::max(base::Lsn(facts.start_lsn.value() + (comes_again ? 1 : 0)), handed_);
  const base::Lsn last =
      remembered.valid() ? progress->last_transactions.back().commit_lsn : base::Lsn();
  if (last.valid() && last >= facts.start_lsn) {
    connection_->known = std::max(connection_->known, base::Lsn(last.value() + 1));
  }
  connection_->last_status = now_.mono;
  connection_->stopping_since = now_.mono;
  if (plan_.faults.Has(Fault::slow_catch_up)) {
    connection_->catches_up_until = now_.mono + milliseconds(random_.Below(8'000));
  }
  connection_->discarded_before = pipeline_->counters().events_discarded;
  Trace("connected at", facts.start_lsn.ToString());
  facts.may_have_dead_letters = dead_letters_.MayHave(facts.confirmed_flush_lsn);
  const std::uint64_t& yields = pipeline_->counters().reconnects_by_reason.at(
      static_cast<std::size_t>(pipeline::ReconnectReason::kTakenOver));
  const std::uint64_t yields_before = yields;
  const bool adopting = pipeline_->adopting();  // what it wrote of that may not have arrived
  pipeline_->OnConnected(facts, now_);
  if (pipeline_->connected()) {
    CheckAccepted(facts);
  }
  if (yields > yields_before) {
    Trace("walpost yields");
    Require(other_acted_ || adopting || kafka_.late_progress(), "it yields to nobody");
    yields_ = true;
  }
}

std::optional<StreamEnd> Simulation::RejectConnect() {
  StreamEnd end;
  if (server_state_ != ServerState::kUp || (Happens(Fault::connect_failure, 300))) {
    end.status = absl::UnavailableError("connection refused");
    return end;
  }
  if (operator_reason_) {
    end.kind = StreamEnd::Kind::kOperator;
    end.reason = *operator_reason_;
    end.status = absl::FailedPreconditionError("for the operator");
    return end;
  }
  if (now_.mono < slot_free_at_) {
    end.kind = StreamEnd::Kind::kSlotInUse;
    end.status = absl::UnavailableError("slot is active");
    return end;
  }
  return NotPublished();
}

void Simulation::Heal() {
  Trace("nothing fails from here on");
  healed_ = true;
  other_acts_at_.reset();
  if (connection_ && connection_->lost) {
    connection_->lost->pings_pass = true;
  }
  kafka_.Heal();
  operator_reason_.reset();
  server_.MendTransaction();
  if (server_.taken_out()) {
    server_.PutBack();
  }
  if (server_state_ == ServerState::kStopping) {
    LoseConnection(StreamEnd::Kind::kFinished, "server stopped");
    ServerDown();
  }
}

}  // namespace walpost::simulation
