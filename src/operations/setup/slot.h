// SlotList, SlotCreate, SlotDrop - the verb `slot`.
// Thread: blocking.
// Errors: in Outcome.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "operations/outcome.h"
#include "operations/setup/init.h"

namespace walpost::operations {

// AwaitOpenTransactions - until every transaction has ended that was open, and had written to an
// outbox, when this began.
// Why: a transaction that was open while its table was out of the publication commits rows that are
//   in no stream, and until it commits nobody sees them in the table either.
// Thread: blocking.

// Prepared ones, too. kDeadlineExceeded after `patience`: names them.
absl::Status AwaitOpenTransactions(const PipelineSettings& pipeline,
                                   std::chrono::milliseconds patience);

// Every slot of the cluster; as JSON with `json`.
Outcome SlotList(const postgres::ConnectOptions& source, bool json);

// Rejects over a recorded history: see Init.
Outcome SlotCreate(const InitOptions& options);

// Without `confirmed` it only says what would be lost (exit code 64).
Outcome SlotDrop(const InitOptions& options, bool confirmed);

}  // namespace walpost::operations
