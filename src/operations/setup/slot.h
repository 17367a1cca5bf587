// SlotList, SlotCreate, SlotDrop - the verb `slot`.
// Thread: blocking.
// Errors: in Outcome.
#pragma once

#include <string>

#include "operations/outcome.h"
#include "operations/setup/init.h"

namespace walpost::operations {

// Every slot of the cluster; as JSON with `json`.
Outcome SlotList(const postgres::ConnectOptions& source, bool json);

// Rejects over a recorded history: see Init.
Outcome SlotCreate(const InitOptions& options);

// Without `confirmed` it only says what would be lost (exit code 64).
Outcome SlotDrop(const InitOptions& options, bool confirmed);

}  // namespace walpost::operations
