#include "runtime/guard.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kafka/progress.h"
#include "pipeline/remembered_progress.h"

namespace walpost::runtime {
namespace {

using base::HaltReason;
using base::Progress;
using base::SourceFacts;
using base::StreamEnd;

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

StreamEnd Unreadable(const absl::Status& status, const std::string& topic) {
  const std::string message(status.message());
  if (absl::IsUnavailable(status)) {
    return Passing("remembered progress cannot be read yet: " + message);
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

}  // namespace

postgres::Guard MakeGuard(const RunOptions& options, std::optional<Progress> known) {
  const std::string& topic = options.pipeline.progress_topic;
  if (topic.empty()) {
    return nullptr;
  }
  return [kafka = options.kafka, progress_key = kafka::ProgressKey{topic, options.name},
          known = std::move(known), read = std::make_shared<kafka::ProgressRead>()](
             SourceFacts* facts) -> std::optional<StreamEnd> {
    // Asked again, only what is new: behind START the stream waits for the answer.
    auto records = kafka::ReadProgress(kafka, progress_key,
                                       {kReadProgressWithin, /*unread=*/nullptr, read.get()});
    const bool lost = absl::IsNotFound(records.status()) || absl::IsDataLoss(records.status());
    if (pipeline::Suffices(known, *facts) &&
        (lost || (records.ok() && !pipeline::DecidedSince(*known, *records)))) {
      records = std::vector<Progress>{*known};
    }
    if (!records.ok()) {
      return Unreadable(records.status(), progress_key.topic);
    }
    pipeline::ProgressCheck check = pipeline::CheckRememberedProgress(*records, *facts);
    if (check.halt) {
      return OperatorEnd(check.halt->reason, check.halt->detail);
    }
    if (!check.not_yet.empty()) {
      return Passing(check.not_yet);
    }
    facts->progress = std::move(check.progress);
    return std::nullopt;
  };
}

}  // namespace walpost::runtime
