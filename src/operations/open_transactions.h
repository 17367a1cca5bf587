// AwaitOpenTransactions - until every transaction has ended that was open, and had written something,
// when this began.
// Why: a transaction that was open while its table was out of the publication commits rows that are in
//   no stream, and until it commits nobody sees them in the table either.
// Thread: blocking.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "postgres/connect.h"

namespace walpost::operations {

// Of this database, prepared ones too. kDeadlineExceeded after `patience`: names them.
absl::Status AwaitOpenTransactions(const postgres::ConnectOptions& source,
                                   std::chrono::milliseconds patience);

}  // namespace walpost::operations
