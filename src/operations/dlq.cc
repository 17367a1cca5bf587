#include "operations/dlq.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace walpost::operations {
namespace {

using envelope::LetterKind;
using kafka::StoredLetter;

// docs/dead-letters.md, walpost-dlq-reason.
constexpr std::array<const char*, 16> kReasons = {
    "record_too_large",  "record_invalid",       "topic_unknown",   "partition_unknown",
    "topic_invalid",     "topic_not_authorized", "refused",         "row_unfit",
    "topic_not_allowed", "header_invalid",       "payload_invalid", "cloudevent_invalid",
    "key_parked",        "transactions_skipped", "schema_refused",  "schema_name_invalid"};

bool IsEvent(LetterKind kind) { return kind == LetterKind::kLetter || kind == LetterKind::kParked; }

}  // namespace

bool LetterFilter::empty() const {
  return id.empty() && position.empty() && key.empty() && type.empty() && topic.empty() &&
         reason.empty() && !since_ms && !until_ms;
}

bool LetterFilter::Matches(const StoredLetter& stored) const {
  const envelope::Letter& letter = stored.letter;
  return (id.empty() || letter.id == id) && (position.empty() || letter.position == position) &&
         (key.empty() || stored.key == key) && (type.empty() || letter.type == type) &&
         (topic.empty() || letter.topic == topic) && (reason.empty() || letter.reason == reason) &&
         (!since_ms || stored.timestamp_ms >= *since_ms) &&
         (!until_ms || stored.timestamp_ms <= *until_ms);
}

absl::StatusOr<std::int64_t> ParseTime(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error) || time == absl::InfiniteFuture() ||
      time == absl::InfinitePast()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not a time: give RFC 3339, for example 2026-05-01T12:00:00Z, or how long ago, for "
        "example 90s, 15min, 2h or 7d",
        text));
  }
  return absl::ToUnixMillis(time);
}

absl::Status CheckFilter(const LetterFilter& filter) {
  if (!filter.reason.empty() &&
      std::find(kReasons.begin(), kReasons.end(), filter.reason) == kReasons.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("no letter has the reason '%s'; the reasons are %s", filter.reason,
                        absl::StrJoin(kReasons, ", ")));
  }
  return filter.position.empty() ? absl::OkStatus()
                                 : envelope::Position::Parse(filter.position).status();
}

base::WallTime WallNow() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

absl::StatusOr<ReadLogResult> ReadLog(const DlqOptions& options, bool keep_decided) {
  ReadLogResult result{envelope::LetterLog(keep_decided), 0};
  ASSIGN_OR_RETURN(
      result.end, kafka::ReadLetters(
                      options.kafka, {options.topic, options.name},
                      [&](const StoredLetter& stored) {
                        return base::Annotate(
                            result.log.Add(stored.offset, stored.key, stored.letter),
                            absl::StrFormat("topic '%s', offset %d", options.topic, stored.offset));
                      },
                      options.kafka_timeout));
  return result;
}

absl::Status VisitLetters(const DlqOptions& options, const ReadLogResult& log,
                          const OnVisit& on_visit) {
  const auto on_letter = [&](const StoredLetter& stored) {
    // What came meanwhile is not in `log`.
    if (!IsEvent(stored.letter.kind) || stored.offset >= log.end) {
      return absl::OkStatus();
    }
    const LetterState state{log.log.IsUndecided(stored.offset, stored.key, stored.letter),
                            log.log.FindDecision(stored.offset)};
    return state.undecided || state.decision != nullptr ? on_visit(stored, state)
                                                        : absl::OkStatus();
  };
  return kafka::ReadLetters(options.kafka, {options.topic, options.name}, on_letter,
                            options.kafka_timeout)
      .status();
}

std::string NoLog(const DlqOptions& options) {
  return absl::StrFormat(
      "there are no letters: topic '%s' does not exist; `walpost init` makes it when "
      "delivery.on_undeliverable is dead_letter or park",
      options.topic);
}

}  // namespace walpost::operations
