// DlqRetry, DlqDiscard - an operator's decision about letters.
// Why: a letter whose key is not parked is sent again, or written off, by the verb itself, one at a
//   time in the order of the log. Of a parked key the order must be kept while new events follow, so
//   only `run` sends those: the verb appends a command to the log and waits for the answer.
// Thread: blocking.
// Errors: in Outcome. 64 without a filter, and for a discard that is not confirmed; 75 when
//   anything meant is still undecided: each is told, and the others are done all the same.
// Source: docs/dead-letters.md.
#pragma once

#include <chrono>
#include <string>

#include "operations/dlq.h"
#include "operations/outcome.h"

namespace walpost::operations {

struct DlqDecideOptions {
  LetterFilter filter;
  bool all_undecided = false;              // instead of a filter
  bool dry_run = false;                    // only tell what would be done
  bool yes = false;                        // a discard is meant
  std::string to_topic;                    // of a retry: instead of the letter's
  std::chrono::milliseconds wait{30'000};  // for `run` to answer
};

Outcome DlqRetry(const DlqOptions& options, const DlqDecideOptions& decide);
Outcome DlqDiscard(const DlqOptions& options, const DlqDecideOptions& decide);

}  // namespace walpost::operations
