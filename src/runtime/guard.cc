#include "runtime/guard.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kafka/progress.h"
#include "pipeline/history.h"

namespace walpost::runtime {
namespace {

using base::HaltReason;
using base::Progress;
using base::SourceFacts;
using base::StreamEnd;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

StreamEnd OperatorEnd(HaltReason reason, const std::string& detail) {
  StreamEnd end;
  end.kind = StreamEnd::Kind::kOperator;
  end.reason = reason;
  end.status = absl::FailedPreconditionError(detail);
  return end;
}

// As any trouble with a connection, it is over by itself.
StreamEnd Passing(const std::string& detail) {
  StreamEnd end;
  end.kind = StreamEnd::Kind::kLost;
  end.status = absl::UnavailableError(detail);
  return end;
}

StreamEnd NotReadableYet(const absl::Status& status) {
  return Passing("remembered progress cannot be read yet: " + std::string(status.message()));
}

StreamEnd Unreadable(const absl::Status& status, const std::string& topic) {
  const std::string message(status.message());
  if (absl::IsUnavailable(status)) {
    return NotReadableYet(status);
  }
  const char* advice = "see docs/runbook.md, progress_unreadable";
  if (absl::IsNotFound(status)) {
    return OperatorEnd(
        HaltReason::kProgressUnreadable,
        absl::StrFormat("progress is remembered in topic '%s', which does not exist: run `walpost "
                        "init`, which creates it; when there was one, it was deleted: %s",
                        topic, advice));
  }
  return OperatorEnd(
      HaltReason::kProgressUnreadable,
      absl::StrFormat("remembered progress cannot be read: %s; %s", message, advice));
}

// It, or the number of its partitions, may be what one broker has not heard of yet.
bool IsDenied(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsFailedPrecondition(status);
}

// One attempt to connect.
class Question {
 public:
  Question(const RunOptions& options, std::optional<Progress> known,
           std::shared_ptr<GuardHistory> history)
      : kafka_(options.kafka),
        progress_key_{options.pipeline.progress_topic, options.name},
        known_(std::move(known)),
        history_(std::move(history)) {}

  std::optional<StreamEnd> Ask(SourceFacts* facts) {
    absl::StatusOr<std::vector<Progress>> records = Read();
    const bool suffices = pipeline::Suffices(known_, *facts);
    const absl::Status& status = records.status();
    const bool lost = absl::IsNotFound(status) || absl::IsDataLoss(status) ||
                      (absl::IsUnimplemented(status) && !IsOverruled());
    if (suffices && (lost || (records.ok() && !pipeline::DecidedSince(*known_, *records)))) {
      records = std::vector<Progress>{*known_};
    }
    if (!records.ok()) {
      return suffices && MayPass(status) ? NotReadableYet(status)
                                         : Unreadable(status, progress_key_.topic);
    }
    history_->denied_at.reset();
    history_->denying = milliseconds(0);
    pipeline::ProgressCheck check = pipeline::CheckRememberedProgress(*records, *facts);
    if (check.halt) {
      return OperatorEnd(check.halt->reason, check.halt->detail);
    }
    if (!check.not_yet.empty()) {
      return Passing(check.not_yet);
    }
    facts->progress = std::move(check.progress);
    return std::nullopt;
  }

 private:
  // By a newer walpost.
  bool IsOverruled() const { return !known_ || read_.unread.Overrules({*known_}); }

  // Asked again, only what is new.
  absl::StatusOr<std::vector<Progress>> Read() {
    const bool again = std::exchange(asked_, true);
    const milliseconds within = again ? kAskAgainWithin : history_->read_within;
    const auto begun = steady_clock::now();
    auto records = kafka::ReadProgress(kafka_, progress_key_, {within, /*unread=*/nullptr, &read_});
    if (!again) {
      const auto took = std::chrono::ceil<milliseconds>(steady_clock::now() - begun);
      const bool slow = absl::IsUnavailable(records.status());
      history_->read_within =
          std::clamp(2 * (slow ? within : took), kReadProgressWithin, kReadProgressWithinMax);
    }
    return records;
  }

  bool MayPass(const absl::Status& status) {
    if (!IsDenied(status)) {
      return false;
    }
    const auto now = steady_clock::now();
    const auto gap = now - history_->denied_at.value_or(now);
    history_->denying += std::min(std::chrono::ceil<milliseconds>(gap), kDenyingMax);
    history_->denied_at = now;
    return history_->denying < kDeniedMax;
  }

  const kafka::KafkaOptions kafka_;
  const kafka::ProgressKey progress_key_;
  const std::optional<Progress> known_;
  const std::shared_ptr<GuardHistory> history_;
  kafka::ProgressRead read_;
  bool asked_ = false;
};

}  // namespace

postgres::Guard MakeGuard(const RunOptions& options, std::optional<Progress> known,
                          std::shared_ptr<GuardHistory> history) {
  if (options.pipeline.progress_topic.empty()) {
    return nullptr;
  }
  return [question = std::make_shared<Question>(options, std::move(known), std::move(history))](
             SourceFacts* facts) { return question->Ask(facts); };
}

}  // namespace walpost::runtime
