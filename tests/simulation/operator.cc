// The dead-letter topic: what walpost reads of it, and an operator who decides about what lies there.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "simulation.h"

namespace walpost::simulation {

using envelope::LetterAction;
using pipeline::Decision;
using std::chrono::milliseconds;

void Simulation::Letters() {
  if (const std::optional<pipeline::LetterRead> wanted = pipeline_->TakeLetterRead(now_)) {
    LettersAnswer answer;
    answer.due = now_.mono + milliseconds(operator_.Below(healed_ ? 5 : 200));
    answer.for_release = !wanted->topic.empty();
    Trace("reads letters from",
          absl::StrFormat("%d %s/%s", wanted->from_offset, wanted->topic, wanted->key));
    answer.read = kafka_.letters().Read(*wanted);
    if (Happens(Fault::letters_unreadable, 200)) {
      answer.read = pipeline::LettersRead{wanted->id, absl::UnavailableError("no broker"), {}, 0};
    } else if (Happens(Fault::letters_unreadable, 10)) {
      answer.read = pipeline::LettersRead{wanted->id, absl::NotFoundError("no such topic"), {}, 0};
    }
    answers_.push_back(std::move(answer));
  }
}

void Simulation::AnswerLetters() {
  while (!answers_.empty() && now_.mono >= answers_.front().due) {
    LettersAnswer answer = std::move(answers_.front());
    answers_.pop_front();
    Trace("letters read up to",
          absl::StrFormat("%d%s %s", answer.read.next_offset, answer.read.at_end ? ", the end" : "",
                          std::string(answer.read.status.message())));
    letters_unreadable_ = letters_unreadable_ || absl::IsNotFound(answer.read.status);
    judge_.OnLettersRead(answer.read, answer.for_release);
    pipeline_->OnLettersRead(std::move(answer.read), now_);
  }
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
  while (const std::optional<Decision> decision = pipeline_->TakeDecision()) {
    if (decision->kind == Decision::Kind::kSkipped) {
      judge_.OnSkipped(decision->event.id);
    }
    Trace("decided:", decision->event.id + " " + decision->event.reason);
  }
}

void Simulation::AppendCommand(LetterAction action, const std::string& topic,
                               const std::string& key, const std::string& position) {
  kafka_.letters().AppendCommand(action, topic, key, position);
  Trace("the operator says",
        absl::StrFormat("%s %s/%s %s", std::string(envelope::LetterActionName(action)), topic, key,
                        position));
}

void Simulation::Operator() {
  if (healed_) {
    OperatorReleases();
    return;
  }
  if (Happens(Fault::operator_commands, 30)) {
    kafka_.TakeOnePoison();
  }
  if (server_.events().empty() || !Happens(Fault::operator_commands, 40)) {
    return;
  }
  // About a key that may be parked; better of one that is.
  std::uint64_t about = operator_.Below(server_.events().size());
  std::vector<std::uint64_t> parked;
  for (const auto& lane : judge_.undecided()) {
    parked.insert(parked.end(), lane.begin(), lane.end());
  }
  if (!parked.empty() && operator_.Chance(900)) {
    about = parked[operator_.Below(parked.size())];
  }
  const Event& event = server_.events()[about];
  const std::uint64_t what = operator_.Below(100);
  AppendCommand(what < 65 ? LetterAction::kRetry : LetterAction::kDiscard, event.topic, event.key,
                what >= 80 ? judge_.PositionOf(about) : "");
}

// At the end: everything that is parked goes on, and what cannot is discarded.
void Simulation::OperatorReleases() {
  if (!operator_.Chance(50)) {
    return;
  }
  for (const auto& lane : judge_.undecided()) {
    if (lane.empty()) {
      continue;
    }
    const Event& event = server_.events()[*lane.begin()];
    if (kafka_.letters().IsWaiting(event.topic, event.key)) {
      continue;
    }
    for (const std::uint64_t each : lane) {
      if (judge_.stub(each)) {
        AppendCommand(LetterAction::kDiscard, event.topic, event.key, judge_.PositionOf(each));
      }
    }
    AppendCommand(LetterAction::kRetry, event.topic, event.key, "");
  }
}

}  // namespace walpost::simulation
