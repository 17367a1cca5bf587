#include "operations/dlq_commands.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/dlq_text.h"

namespace walpost::operations {
namespace {

using envelope::Letter;
using envelope::LetterAction;
using envelope::LetterKind;
using kafka::StoredLetter;

}  // namespace

void KeyCommands::Add(const StoredLetter& stored, bool alone) {
  Target target{{stored.letter.topic, std::string(stored.key.value_or(""))}, "", 0};
  if (alone && action_ == LetterAction::kDiscard) {
    target.position = stored.letter.position;
  }
  const auto [found, is_new] =
      index_.emplace(std::pair(target.key, target.position), targets_.size());
  if (is_new) {
    targets_.push_back(std::move(target));
  }
  ++targets_[found->second].events;
}

std::string KeyCommands::Name(const Target& target) const {
  const std::string key =
      absl::StrFormat("key %s of topic '%s'", Printable(target.key.key, 0), target.key.topic);
  return target.position.empty()
             ? absl::StrFormat("parked %s, the whole of it since its order is kept", key)
             : absl::StrFormat("parked event at %s of %s", target.position, key);
}

std::string KeyCommands::Describe() const {
  std::string text;
  for (const Target& target : targets_) {
    text += absl::StrFormat("would have `walpost run` %s %s\n", envelope::LetterActionName(action_),
                            Name(target));
  }
  return text;
}

absl::StatusOr<CommandAnswers> KeyCommands::Run(const ReadLogResult& log,
                                                std::chrono::milliseconds wait) {
  CommandAnswers answers;
  if (targets_.empty()) {
    return answers;
  }
  std::map<std::int64_t, const Target*> open;  // by the offset of the command
  for (const Target& target : targets_) {
    ASSIGN_OR_RETURN(const std::int64_t offset, Append(target, log));
    open[offset] = &target;
  }
  const absl::Status waited = Await(log.end, wait, &open, &answers);
  if (!absl::IsCancelled(waited)) {
    RETURN_IF_ERROR(waited);
  }
  for (const auto& [offset, target] : open) {
    ++answers.open;
    answers.text += absl::StrFormat(
        "%s: no answer within %d s; the command stays in the log at offset %d, and `walpost run` "
        "does it when delivery.on_undeliverable is dead_letter or park\n",
        Name(*target), std::chrono::duration_cast<std::chrono::seconds>(wait).count(), offset);
  }
  return answers;
}

absl::StatusOr<std::int64_t> KeyCommands::Append(const Target& target, const ReadLogResult& log) {
  for (const auto& [offset, command] : log.log.pending()) {
    const std::string position = command.position ? command.position->ToString() : "";
    if (command.action == action_ && command.key == target.key && position == target.position) {
      return offset;  // asked for before, and not answered yet
    }
  }
  Letter command;
  command.kind = LetterKind::kCommand;
  command.action = action_;
  command.pipeline = options_.name;
  command.topic = target.key.topic;
  command.position = target.position;
  envelope::Record event;
  event.key = target.key.key;
  base::ChunkArena arena;
  return writer_.Write(envelope::EncodeLetter(command, options_.topic, event, &arena), WallNow());
}

absl::Status KeyCommands::Await(std::int64_t from_offset, std::chrono::milliseconds wait,
                                std::map<std::int64_t, const Target*>* open,
                                CommandAnswers* answers) const {
  const kafka::LetterPlace place{options_.topic, options_.name, from_offset, wait};
  const auto on_letter = [&](const StoredLetter& stored) {
    const Letter& letter = stored.letter;
    const auto found = letter.kind == LetterKind::kDecision && letter.answers
                           ? open->find(*letter.answers)
                           : open->end();
    if (found == open->end()) {
      return absl::OkStatus();
    }
    answers->text += absl::StrFormat("%s: %s%s%s\n", Name(*found->second),
                                     envelope::LetterActionName(letter.action),
                                     letter.detail.empty() ? "" : ": ", letter.detail);
    answers->open += letter.action == LetterAction::kFailed ? 1U : 0U;
    open->erase(found);
    return open->empty() ? absl::CancelledError("all answers are there") : absl::OkStatus();
  };
  return kafka::ReadLetters(options_.kafka, place, on_letter, options_.kafka_timeout).status();
}

}  // namespace walpost::operations
