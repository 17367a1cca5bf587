#include "operations/dlq_decide.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/dlq_commands.h"
#include "operations/dlq_resend.h"
#include "operations/dlq_text.h"

namespace walpost::operations {
namespace {

using envelope::LetterAction;
using envelope::LetterKind;
using kafka::StoredLetter;

std::string Name(const StoredLetter& stored) {
  return absl::StrFormat("event %s at %s", Printable(stored.letter.id, 0), stored.letter.position);
}

class Decider {
 public:
  Decider(const DlqOptions& options, const DlqDecideOptions& decide, LetterAction action)
      : options_(options),
        decide_(decide),
        action_(action),
        resender_(options),
        commands_(options, action) {}

  absl::StatusOr<Outcome> Run() {
    const absl::StatusOr<ReadLogResult> log = ReadLog(options_, /*keep_decided=*/false);
    if (absl::IsNotFound(log.status())) {
      return Outcome{0, NoLog(options_) + "\n", ""};
    }
    RETURN_IF_ERROR(log.status());
    RETURN_IF_ERROR(VisitLetters(
        options_, *log,
        [this](const StoredLetter& stored, const LetterState&) { return Take(stored); }));
    if (matching_ == 0) {
      return Outcome{0, "no undecided letter matches\n", ""};
    }
    if (only_tell()) {
      text_ += commands_.Describe();
      return decide_.dry_run
                 ? Outcome{0, text_ + "nothing was changed\n", ""}
                 : Outcome{kExitUsage, text_, "nothing was changed; add --yes to do it"};
    }
    ASSIGN_OR_RETURN(const CommandAnswers answers, commands_.Run(*log, decide_.wait));
    text_ += answers.text;
    if (failed_ + answers.open == 0) {
      return Outcome{0, text_, ""};
    }
    return Outcome{kExitRetryLater, text_,
                   absl::StrFormat("still undecided: %s, %s", Count(failed_, "letter"),
                                   Count(answers.open, "parked key"))};
  }

 private:
  bool only_tell() const {
    return decide_.dry_run || (action_ == LetterAction::kDiscard && !decide_.yes);
  }

  absl::Status Take(const StoredLetter& stored) {
    if (!decide_.filter.Matches(stored)) {
      return absl::OkStatus();
    }
    ++matching_;
    if (stored.letter.kind == LetterKind::kParked) {
      if (!decide_.to_topic.empty()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s is parked: its key's order is that of topic '%s', so --to-topic is "
                            "only for letters",
                            Name(stored), stored.letter.topic));
      }
      commands_.Add(stored, decide_.filter.one_event());
      return absl::OkStatus();
    }
    if (only_tell()) {
      text_ += absl::StrFormat("would %s %s\n", envelope::LetterActionName(action_), Name(stored));
      return absl::OkStatus();
    }
    const auto done = action_ == LetterAction::kRetry ? resender_.Retry(stored, decide_.to_topic)
                                                      : resender_.Discard(stored);
    if (done.ok()) {
      text_ += absl::StrFormat("%s: %s\n", Name(stored), *done);
    } else {
      ++failed_;
      text_ +=
          absl::StrFormat("%s: failed: %s\n", Name(stored), std::string(done.status().message()));
    }
    return absl::OkStatus();
  }

  const DlqOptions& options_;
  const DlqDecideOptions& decide_;
  const LetterAction action_;
  Resender resender_;
  KeyCommands commands_;
  std::string text_;
  std::size_t matching_ = 0;
  std::size_t failed_ = 0;
};

Outcome Decide(const DlqOptions& options, const DlqDecideOptions& decide, LetterAction action) {
  if (decide.filter.empty() && !decide.all_undecided) {
    return Outcome{kExitUsage, "",
                   "which letters? Give at least one of --id, --position, --key, --type, --topic, "
                   "--reason, --since, --until, or --all-undecided"};
  }
  absl::StatusOr<Outcome> outcome = Decider(options, decide, action).Run();
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

}  // namespace

Outcome DlqRetry(const DlqOptions& options, const DlqDecideOptions& decide) {
  return Decide(options, decide, LetterAction::kRetry);
}

Outcome DlqDiscard(const DlqOptions& options, const DlqDecideOptions& decide) {
  return Decide(options, decide, LetterAction::kDiscard);
}

}  // namespace walpost::operations
