// Dlq - what the verbs about dead letters share: which ones are meant, and how their table is
// opened.
// Thread: values; OpenDeadLetters blocks.
// Errors: postgres::DeadLetterTable's; ParseTime and CheckFilter: kInvalidArgument, for the one who
//   typed.
// Source: docs/dead-letters.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dead_letter.h"
#include "base/time.h"
#include "operations/outcome.h"
#include "postgres/dead_letters.h"

namespace walpost::operations {

// Empty = any.
struct DeadLetterFilter {
  std::string id;
  std::string position;
  std::string key;
  std::string type;
  std::string topic;
  std::string reason;
  std::optional<std::int64_t> since_ms;  // when it was written, both ends included
  std::optional<std::int64_t> until_ms;

  bool empty() const;

  // About a single event, and not about what shares something with it.
  bool one_event() const { return !id.empty() || !position.empty(); }

  bool Matches(const base::DeadLetter& row) const;
};

// What cannot match anything is a slip of who typed it.
absl::Status CheckFilter(const DeadLetterFilter& filter);

// RFC 3339 in milliseconds since 1970.
absl::StatusOr<std::int64_t> ParseTime(const std::string& text);

base::WallTime WallNow();

absl::StatusOr<postgres::DeadLetterTable> OpenDeadLetters(const PipelineSettings& options);

// The same. Nothing where there is no such table: then there are none.
absl::StatusOr<std::optional<postgres::DeadLetterTable>> FindDeadLetters(
    const PipelineSettings& options);

// DlqRetry, DlqDiscard - an operator's decision about dead letters.
// Why: the order of a parked key must be kept while new events follow, so only `run` sends. The
//   verb writes the decision into the table and waits until it was carried out. Of a parked key a
//   retry is always about the whole of it. What a target needs is written in one transaction with
//   its decision.
// Thread: blocking.
// Errors: in Outcome. 64 without a filter, and for a discard that is not confirmed; 75 when
//   anything meant is still undecided: each is named, and the others are done all the same.
// Source: docs/dead-letters.md.
struct DlqDecideOptions {
  DeadLetterFilter filter;
  bool all_undecided = false;              // instead of a filter
  bool dry_run = false;                    // only say what would be done
  bool yes = false;                        // a discard is meant
  std::string to_topic;                    // of a retry: instead of the event's own
  std::chrono::milliseconds wait{30'000};  // for `run` to carry it out
};

Outcome DlqRetry(const PipelineSettings& options, const DlqDecideOptions& decide);
Outcome DlqDiscard(const PipelineSettings& options, const DlqDecideOptions& decide);

}  // namespace walpost::operations
