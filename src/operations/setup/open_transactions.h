// AwaitOpenTransactions - until every transaction has ended that was open, and had written to an outbox,
// when this began.
// Why: a transaction that was open while its table was out of the publication commits rows that are in
//   no stream, and until it commits nobody sees them in the table either.
// Thread: blocking.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "operations/pipeline_settings.h"

namespace walpost::operations {

// Prepared ones, too. kDeadlineExceeded after `patience`: names them.
absl::Status AwaitOpenTransactions(const PipelineSettings& pipeline,
                                   std::chrono::milliseconds patience);

}  // namespace walpost::operations
