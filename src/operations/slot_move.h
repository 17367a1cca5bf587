// SlotAdvance, SlotRecreate - the ways out when the slot and remembered progress do not fit: an
// operator decides where streaming goes on.
// Why: each may leave events out, so neither does anything without a confirmation, and both tell
//   what is left out before and after. They write progress of a new epoch, which counts for more
//   than any position of before.
// Thread: blocking.
// Errors: in Outcome. 64 without confirmation; 78 when the slot is in use or cannot be streamed.
#pragma once

#include <string>

#include "operations/init.h"
#include "operations/outcome.h"

namespace walpost::operations {

// With `to`: skips every transaction that committed at or before that LSN. With an empty one: takes
// the slot, its cluster and its tables as they are.
Outcome SlotAdvance(const InitOptions& options, const std::string& to, bool confirmed);

// Drops the slot when it is there, and makes it anew as `init` does, publication included.
Outcome SlotRecreate(const InitOptions& options, bool confirmed);

}  // namespace walpost::operations
