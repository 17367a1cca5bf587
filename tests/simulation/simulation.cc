#include "simulation.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "violation.h"

namespace walpost::simulation {

using base::StreamEnd;
using pipeline::StreamCommand;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr int kFramesPerTurn = 64;
constexpr std::uint64_t kTurnsToSettleMax = 100'000;
// The operator makes room: a large transaction may have hundreds of rows that nobody can send.
constexpr std::uint64_t kDeadLettersMaxAtLast = 10'000;

}  // namespace

Simulation::Simulation(const Plan& plan)
    : plan_(plan),
      random_(plan.seed, 3),
      time_(plan.seed, 4),
      server_(plan),
      judge_(&server_, plan),
      kafka_(plan, &server_, &judge_),
      dead_letters_(plan, &judge_),
      operator_(plan.seed, 8),
      registry_(plan.seed, 12),
      now_{base::MonotonicTime(std::chrono::hours(1)),
           base::WallTime(std::chrono::seconds(1'700'000'100))} {
  for (unsigned i = 0; i < static_cast<unsigned>(Fault::count_); ++i) {
    fault_random_.emplace_back(plan.seed, 100 + i);
  }
  if (Happens(Fault::promoted, 700)) {
    server_.BecomeStandby();
  }
}

void Simulation::Trace(const char* what, const std::string& more) {
  if (trace_) {
    const auto since = now_.mono - base::MonotonicTime(std::chrono::hours(1));
    std::printf("%6lld ms  turn %-5llu %s %s\n",
                static_cast<long long>(std::chrono::duration_cast<milliseconds>(since).count()),
                static_cast<unsigned long long>(turn_), what, more.c_str());
  }
}

void Simulation::Run() {
  StartProcess();
  for (; turn_ < plan_.turns; ++turn_) {
    World();
    Turn();
  }
  Heal();
  for (; !Settled(); ++turn_) {
    Require(turn_ < plan_.turns + kTurnsToSettleMax,
            "G1: nothing fails any more, but the first event that is in no log commits at %s; the "
            "slot is at %s of %s",
            judge_.first_missing().ToString(), server_.confirmed_flush().ToString(),
            server_.wal_end().ToString());
    World();
    Turn();
  }
  // What a process that is gone wrote of its progress may arrive when another has begun to repeat.
  if (!kafka_.late_progress()) {
    judge_.CheckNewest();
  }
}

bool Simulation::Settled() {
  return server_.written() >= plan_.transactions && judge_.complete() &&
         server_.confirmed_flush() == server_.wal_end();
}

void Simulation::StartProcess() {
  pipeline::PipelineOptions options = plan_.options;
  options.seed += ++processes_;
  if (options.on_undeliverable == pipeline::OnUndeliverable::kPark ||
      options.on_undeliverable == pipeline::OnUndeliverable::kDeadLetter) {
    if (Happens(Fault::policy_change, 500)) {
      options.on_undeliverable = pipeline::OnUndeliverable::kDeadLetter;
    }
  }
  if (healed_) {
    options.dead_letters_max = kDeadLettersMaxAtLast;
  }
  if (plan_.adopts) {
    if (server_.adoption() == ModelPostgres::Adoption::kNone && kafka_.progress().newest() &&
        Happens(Fault::adopted, 700)) {
      server_.Configure();
      Trace("a table is an outbox from here on");
    }
    if (!server_.configured()) {
      options.outboxes.pop_back();
    }
  }
  judge_.SetPolicy(options.on_undeliverable);
  judge_.OnMemoryLost();
  judge_.ForgetReports();
  accepted_.reset();
  handed_ = base::Lsn();
  foreign_halt_ = false;
  AbandonStatements();
  rows_written_ = 0;
  schema_answer_.reset();
  look_answer_.reset();
  dead_letters_unusable_ = false;
  most_open_ = 0;
  stopping_ = halt_seen_ = yields_ = false;
  errors_.clear();
  losses_ = 0;
  connecting_.reset();
  finishing_until_ = base::MonotonicTime();
  recover_at_ = base::MonotonicTime();
  spins_ = 0;
  pipeline_ = std::make_unique<pipeline::Pipeline>(std::move(options), &kafka_, now_);
  Trace("walpost starts");
}

void Simulation::Turn() {
  if (pipeline_ == nullptr) {
    Wait(0);
    return;
  }
  AnswerSchemas();
  AnswerLook();
  AnswerDeadLetters();  // first, as the loop takes what its helper has done
  pipeline_->Tick(now_);
  Commands();
  const int frames = ReadFrames();
  if (frames == 0) {
    pipeline_->OnQuiet(now_);
  }
  Commands();
  CheckTurn();
  SeeToProcess();
  Wait(frames);
}

void Simulation::Commands() {
  TakeDecisions();
  switch (pipeline_->TakeStreamCommand()) {
    case StreamCommand::kNone:
      break;
    case StreamCommand::kFinish:
      if (connection_) {
        const pgoutput::StandbyStatus status = pipeline_->FinalStatus(now_);
        CheckStatus(status, "final status");
        CheckFinalStatus(status);
        connection_->delayed.push_back(status.flush);
        Trace("finishes the stream at", status.flush.ToString());
        DropConnection(/*slot_stays_taken=*/false);
        finishing_until_ = now_.mono + milliseconds(random_.Below(30));
      }
      break;
    case StreamCommand::kClose:
      Trace("closes the connection");
      DropConnection(/*slot_stays_taken=*/true);
      break;
  }
  if (now_.mono >= finishing_until_) {
    if (const std::optional<base::Lsn> start = pipeline_->TakeConnect(now_)) {
      Require(!connection_ && !connecting_, "a second connection is asked for");
      if (std::exchange(yields_, false)) {
        Resumed();
      }
      if (!foreign_.set_back) {
        judge_.OnPosition(*start, "START at");
      }
      connecting_ = Attempt{*start, pipeline_->known_progress()};
      connected_at_ = now_.mono + milliseconds(random_.Below(20));
    }
  }
  Statuses();
  if (const auto question = connection_ ? pipeline_->TakePing(now_) : std::nullopt) {
    pipeline_->OnPing(AnswerPing(*question), now_.mono, now_);
  }
  Look();
  DeadLetters();
  Schemas();
}

void Simulation::Statuses() {
  if (!connection_) {
    return;
  }
  const std::optional<pgoutput::StandbyStatus> status = pipeline_->TakeStatus(now_);
  if (!status) {
    return;
  }
  CheckStatus(*status, "status");
  Trace("status", status->flush.ToString());
  connection_->last_status = now_.mono;
  connection_->last_flush = status->flush;
  connection_->reply_due = false;
  connection_->unreported_since.reset();
  if (connection_->end) {
    EndOfStream();  // it could not be sent
    return;
  }
  connection_->probe_due = connection_->probe_due || status->reply_requested;
  connection_->delayed.push_back(status->flush);
}

base::PingAnswer Simulation::AnswerPing(base::PingQuestion question) {
  if (server_state_ == ServerState::kStopping) {
    Trace("a ping says that the server stops");
    return base::PingAnswer::kStopping;
  }
  const bool given_up = connection_->lost && now_.mono >= connection_->lost->given_up_at;
  if (server_state_ == ServerState::kDown ||
      (connection_->lost && !connection_->lost->pings_pass)) {
    return base::PingAnswer::kNone;
  }
  if (question == base::PingQuestion::kServes) {
    return base::PingAnswer::kServes;
  }
  return given_up ? base::PingAnswer::kNotOurs : base::PingAnswer::kOurs;
}

int Simulation::ReadFrames() {
  int frames = 0;
  burst_ = 0;
  while (connection_ && frames < kFramesPerTurn && pipeline_->want_frame() && TakeFrame()) {
    ++frames;
  }
  return frames - burst_;
}

bool Simulation::TakeFrame() {
  if (connection_->end) {
    EndOfStream();
    return false;
  }
  if (connection_->lost) {
    if (connection_->lost->frames_left == 0) {
      return false;
    }
    --connection_->lost->frames_left;
  }
  const base::WallTime sent_at = connection_->lost ? connection_->lost->at : now_.wall;
  Walsender& walsender = *connection_->walsender;
  if (now_.mono < connection_->catches_up_until && server_state_ == ServerState::kUp) {
    return false;
  }
  if (Happens(Fault::slow_server, 300)) {
    return false;
  }
  if (connection_->probe_due || random_.Chance(30)) {
    connection_->probe_due = false;
    const bool reply_requested = random_.Chance(300);
    HandFrame(walsender.Keepalive(reply_requested, sent_at), true, reply_requested);
    return true;
  }
  if (const std::optional<std::string> frame = walsender.Next(sent_at)) {
    HandFrame(*frame, false, false);
    return true;
  }
  if (walsender.failed()) {
    ServerError();
    return false;
  }
  if (server_state_ == ServerState::kStopping) {
    if (server_.confirmed_flush() >= walsender.sent()) {
      LoseConnection(StreamEnd::Kind::kFinished, "server stopped");
      ServerDown();
      return false;
    }
    // Without end, as fast as they are answered: time passes all the same.
    HandFrame(walsender.Keepalive(true, sent_at), true, true);
    return ++burst_ % 8 != 0;
  }
  if (random_.Chance(100)) {
    HandFrame(walsender.Keepalive(false, sent_at), true, false);
  }
  return false;
}

void Simulation::EndOfStream() {
  const StreamEnd end = *std::move(connection_->end);
  losses_ = pipeline_->received_lsn() > furthest_ ? 1 : losses_ + 1;
  furthest_ = std::max(furthest_, pipeline_->received_lsn());
  if (end.kind == StreamEnd::Kind::kServerError) {
    // Where the error is, as far as walpost can know.
    const Walsender& walsender = *connection_->walsender;
    ++errors_[walsender.in_transaction() ? "in " + walsender.sent().ToString()
              : !end.context.empty()     ? end.context
                                         : "after " + pipeline_->received_lsn().ToString()];
  }
  DropConnection(/*slot_stays_taken=*/false);
  Trace("stream ended:", std::string(end.status.message()));
  pipeline_->OnStreamEnd(end, now_);
}

void Simulation::HandFrame(const std::string& frame, bool keepalive, bool reply_requested) {
  // Every frame is at another place, as in libpq's buffer, and gone after the call.
  const std::unique_ptr<char[]> copy = std::make_unique<char[]>(frame.size());
  std::copy(frame.begin(), frame.end(), copy.get());
  Connection& connection = *connection_;
  if (!keepalive) {
    connection.stopping_since = now_.mono;  // it gets on
  }
  connection.reply_due = connection.reply_due || reply_requested;
  const bool was_complete = !connection.walsender->in_transaction();
  // Outside a transaction only keepalives and commits report a position.
  if (was_complete && (keepalive || connection.commit_pending) &&
      connection.walsender->sent() >= connection.known) {
    connection.complete = std::max(connection.complete, connection.walsender->sent());
  }
  connection.commit_pending = !was_complete;
  if (trace_) {
    Trace(keepalive ? "keepalive" : "frame",
          keepalive ? connection.walsender->sent().ToString() : std::string(1, frame[25]));
  }
  const base::Lsn sent = connection.walsender->sent();
  handed_ = std::max(handed_,
                     connection.walsender->in_transaction() ? base::Lsn(sent.value() + 1) : sent);
  pipeline_->OnFrame(std::string_view(copy.get(), frame.size()), now_);
  if (foreign_.set_back && !pipeline_->halt() && connection.complete >= set_back_from_) {
    foreign_.set_back = false;  // its end was passed, and nothing that walpost knew is missing
    Trace("nothing that was set back matters");
  }
}

void Simulation::Wait(int frames) {
  microseconds step(300);
  if (frames == 0) {
    const bool quiet = kafka_.away_for_long() && server_state_ == ServerState::kUp;
    base::MonotonicTime deadline = now_.mono + milliseconds(quiet ? 15'000 : 1'000);
    if (pipeline_ != nullptr) {
      deadline = std::min(deadline, pipeline_->NextDeadline());
      deadline = statements_.empty() ? deadline : std::min(deadline, statements_.front().due);
      deadline = look_answer_ ? std::min(deadline, look_answer_->due) : deadline;
      deadline = schema_answer_ ? std::min(deadline, schema_answer_->due) : deadline;
    }
    const auto whole = std::chrono::ceil<milliseconds>(deadline - now_.mono);
    const auto most = static_cast<std::uint64_t>(std::max<std::int64_t>(whole.count(), 1));
    const std::uint64_t draw = time_.Below(10);
    step = milliseconds(draw < 5   ? std::min(most, time_.Below(20))
                        : draw < 7 ? time_.Below(most)
                                   : most);
    step = std::max(step, microseconds(50));
  }
  now_.mono += step;
  now_.wall += step;
}

}  // namespace walpost::simulation
