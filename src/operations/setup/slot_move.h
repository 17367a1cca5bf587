// SlotAdvance, SlotRecreate - the ways out when the slot and remembered progress do not fit: an
// operator decides where streaming goes on.
// Why: each may leave events out, so neither does anything without a confirmation, and both say
//   what is left out, before and after. They write progress of a new epoch, which counts for more
//   than any position of before.
// Thread: blocking.
// Errors: in Outcome. 64 without confirmation; 78 when the slot is in use or cannot be streamed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operations/outcome.h"
#include "operations/setup/init.h"

namespace walpost::operations {

// For `init`: what publication and tables are now, beside where the slot begins, so that an edit
// before the first `run` is noticed. Nothing, when something is remembered already.
absl::Status RememberBeginning(const InitOptions& options);

// With `to`: skips every transaction that committed at or before that LSN. With an empty one: takes
// the slot, its cluster and its tables as they are.
Outcome SlotAdvance(const InitOptions& options, const std::string& to, bool confirmed);

struct RecreateOptions {
  InitOptions init;  // without `backfill`
  BackfillOptions backfill;
  bool leave_gap = false;                // the events of the gap are not sent
  std::optional<std::int64_t> since_ms;  // when the gap began, as an operator says
};

// Drops the slot when it is there, makes it anew as `init` does, publication included, and sends
// the rows from before the new one that Kafka does not hold.
Outcome SlotRecreate(const RecreateOptions& options, bool confirmed);

}  // namespace walpost::operations
