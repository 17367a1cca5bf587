// DlqRetry, DlqDiscard - an operator's decision about dead letters.
// Why: the order of a parked key must be kept while new events follow, so only `run` sends. The verb
//   writes the decision into the table and waits until it was carried out. Of a parked key a retry is
//   always about the whole of it. What a target needs is written in one transaction with its decision.
// Thread: blocking.
// Errors: in Outcome. 64 without a filter, and for a discard that is not confirmed; 75 when
//   anything meant is still undecided: each is named, and the others are done all the same.
// Source: docs/dead-letters.md.
#pragma once

#include <chrono>
#include <string>

#include "operations/deadletters/dlq.h"
#include "operations/outcome.h"

namespace walpost::operations {

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
