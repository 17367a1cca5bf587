// The table of dead letters: what walpost asks of it, and an operator who decides about its rows.
#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "simulation.h"
#include "violation.h"

namespace walpost::simulation {

using base::DeadLetter;
using pipeline::DeadLetterReply;
using pipeline::DeadLetterRequest;
using pipeline::Decision;
using std::chrono::milliseconds;

namespace {

constexpr const char* kKindNames[] = {"insert",      "load",     "load rows", "read sent",
                                      "delete sent", "decision", "read",      "look again",
                                      "delivered",   "failed",   "discarded", "key discarded"};

const char* NameOf(DeadLetterRequest::Kind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

}  // namespace

void Simulation::DeadLetters() {
  std::optional<DeadLetterRequest> wanted = pipeline_->TakeDeadLetterRequest(now_);
  if (!wanted) {
    return;
  }
  for (const DeadLetter& row : wanted->rows) {
    judge_.OnInsertAsked(row);
  }
  Trace("asks the table:", absl::StrFormat("%s %u rows, seq %d", NameOf(wanted->kind),
                                           wanted->rows.size(), wanted->seq));
  Statement statement;
  statement.due = now_.mono + milliseconds(operator_.Below(healed_ ? 5 : 200));
  statement.request = *std::move(wanted);
  statements_.push_back(std::move(statement));
}

void Simulation::AnswerDeadLetters() {
  if (statements_.empty()) {
    return;
  }
  Statement& first = statements_.front();
  // Some time before the answer arrives.
  const bool may_be = server_state_ != ServerState::kDown || now_.mono >= first.due;
  if (!first.reply && may_be && (now_.mono >= first.due || operator_.Chance(300))) {
    DeadLetterReply& reply = first.reply.emplace();
    if (server_state_ == ServerState::kDown || Happens(Fault::dead_letters_unreachable, 200)) {
      reply.status = absl::UnavailableError("the server is away");
    } else if (Happens(Fault::dead_letters_unusable, 10)) {
      reply.status = absl::NotFoundError("no such table");
    } else {
      reply = dead_letters_.CarryOut(first.request);
      Trace("the table has done:", NameOf(first.request.kind));
      if (Happens(Fault::dead_letters_unreachable, 100)) {
        reply.status = absl::UnavailableError("the answer was lost");
      }
    }
    reply.id = first.request.id;
  }
  if (now_.mono < first.due || !first.reply) {
    return;
  }
  const Statement statement = std::move(first);
  statements_.pop_front();
  const DeadLetterReply& reply = *statement.reply;
  Trace("the table answers:", absl::StrFormat("%s %s", NameOf(statement.request.kind),
                                              std::string(reply.status.message())));
  const std::uint64_t known = RowsKnown();
  pipeline_->OnDeadLetterReply(reply, now_);
  // Of a connection that has ended it takes nothing.
  if (const std::uint64_t more = RowsKnown() - known; more > 0) {
    const auto none =
        std::count(reply.states.begin(), reply.states.end(), base::DeadLetterState::kNone);
    Require(reply.status.ok() && more + static_cast<std::uint64_t>(none) == reply.states.size(),
            "%u rows are counted, of %u of which %d are not there", more, reply.states.size(),
            none);
    rows_written_ += more;
    for (std::size_t i = 0; i < reply.states.size(); ++i) {
      if (reply.states[i] != base::DeadLetterState::kNone) {
        judge_.OnKnown(statement.request.rows[i]);
      }
    }
  }
  dead_letters_unusable_ = dead_letters_unusable_ || absl::IsNotFound(reply.status);
}

std::uint64_t Simulation::RowsKnown() const {
  const pipeline::Counters& counters = pipeline_->counters();
  return counters.events_dead_lettered + counters.events_parked;
}

// walpost died: what it asked for is done, or not.
void Simulation::AbandonStatements() {
  for (const Statement& statement : statements_) {
    if (!statement.reply && server_state_ == ServerState::kUp && operator_.Chance(300)) {
      dead_letters_.CarryOut(statement.request);
      Trace("the table has done all the same:", NameOf(statement.request.kind));
    }
  }
  statements_.clear();
}

// The registry: slow, away now and then, and each time with another id.
void Simulation::Schemas() {
  if (const std::optional<pipeline::SchemaLookUp> wanted = pipeline_->TakeSchemaLookUp(now_)) {
    schema_answer_ =
        SchemaAnswer{now_.mono + milliseconds(registry_.Below(healed_ ? 5 : 300)), *wanted};
  }
}

void Simulation::AnswerSchemas() {
  if (!schema_answer_ || now_.mono < schema_answer_->due) {
    return;
  }
  const pipeline::SchemaLookUp look_up = std::exchange(schema_answer_, std::nullopt)->look_up;
  pipeline::SchemaAnswers answers;
  while (answers.size() < look_up.needs.size()) {
    if (!healed_ && registry_.Chance(300)) {
      answers.emplace_back(absl::UnavailableError("the registry is away"));
      break;
    }
    answers.emplace_back(envelope::Schema{static_cast<std::int32_t>(registry_.Below(255)) + 1,
                                          std::nullopt,
                                          {},
                                          registry_.Chance(500)});
  }
  Trace("the registry answers", absl::StrFormat("%u of %u", answers.size(), look_up.needs.size()));
  pipeline_->OnSchemaAnswers(look_up, answers, now_);
}

void Simulation::TakeDecisions() {
  std::size_t reported = 0;
  while (const std::optional<Decision> decision = pipeline_->TakeDecision()) {
    if (decision->kind == Decision::Kind::kSkipped) {
      judge_.OnSkipped(decision->event.id);
    }
    Trace("decided:", decision->event.id + " " + decision->event.reason);
    ++reported;
  }
  if (reported >= pipeline::Undeliverables::kUnreportedMax) {
    judge_.OnSkippedUnreported();
  }
}

void Simulation::Decide(const DeadLetter& row, DeadLetter::Decision decision, bool of_key) {
  const char* const what = decision == DeadLetter::Decision::kRetry     ? "retry"
                           : decision == DeadLetter::Decision::kDiscard ? "discard"
                                                                        : "decide nothing";
  Trace("the operator says", absl::StrFormat("%s %s %s/%s", what, of_key ? "the key of" : "",
                                             row.event_id, row.key.value_or("")));
  dead_letters_.Decide(row.seq, decision, of_key);
}

void Simulation::Operator() {
  if (healed_) {
    OperatorReleases();
    return;
  }
  if (Happens(Fault::operator_commands, 30)) {
    kafka_.TakeOnePoison();
  }
  if (dead_letters_.open_rows() == 0 || !Happens(Fault::operator_commands, 40)) {
    return;
  }
  const auto open = dead_letters_.Open();
  const DeadLetter& row = *open[operator_.Below(open.size())];
  const std::uint64_t what = operator_.Below(100);
  if (what < 65) {
    Decide(row, DeadLetter::Decision::kRetry, row.parked);
  } else if (what >= 90 && row.parked && row.decision != DeadLetter::Decision::kNone) {
    Decide(row, DeadLetter::Decision::kNone, /*of_key=*/false);
  } else if (!row.retry() || row.parked) {
    Decide(row, DeadLetter::Decision::kDiscard, what < 80 && row.parked);
  }
}

// At the end: everything that is parked goes on, and what cannot is discarded. A key with a retry
// is left alone: that is carried out, or taken back.
void Simulation::OperatorReleases() {
  if (!operator_.Chance(50)) {
    return;
  }
  std::set<std::pair<std::string, std::string>> keys;
  for (const DeadLetter* row : dead_letters_.Open()) {
    if (row->parked && row->retry()) {
      keys.emplace(row->topic, row->key.value_or(""));
    }
  }
  for (const DeadLetter* row : dead_letters_.Open()) {
    if (row->parked && row->truncated_bytes && !row->discard()) {
      Decide(*row, DeadLetter::Decision::kDiscard, /*of_key=*/false);
    }
  }
  for (const DeadLetter* row : dead_letters_.Open()) {
    const bool first = row->parked && keys.emplace(row->topic, row->key.value_or("")).second;
    if (first && row->decision == DeadLetter::Decision::kNone) {
      Decide(*row, DeadLetter::Decision::kRetry, /*of_key=*/true);
    } else if (!row->parked && row->decision == DeadLetter::Decision::kNone &&
               plan_.options.dead_letters_max < 10) {
      Decide(*row, DeadLetter::Decision::kDiscard, /*of_key=*/false);  // to make room
    }
  }
}

}  // namespace walpost::simulation
