// AwaitConfirmed - until the pipeline's slot has confirmed a position: what was committed before it is
// in Kafka then. AwaitReplayed - until a standby has what its primary had.
// Why: an event that is sent again must not come before its first time, and what is not in Kafka yet is
//   not missing. Of rows that a standby does not have yet, nobody would notice that they are missing.
// Thread: blocking.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "postgres/connect.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// The end of all that is visible to the transaction on `connection`, of a primary or of a standby.
absl::StatusOr<base::Lsn> EndOfSnapshot(postgres::SqlConnection* connection);

// kDeadlineExceeded after `patience`, kNotFound without a slot: says how far it is and who reads it.
absl::Status AwaitConfirmed(const postgres::ConnectOptions& source, base::Lsn position,
                            std::chrono::milliseconds patience);

// Until the server of `standby`, which has no transaction open, has all that `source` has as of the call;
// that may be a standby itself. kAborted after `patience`: says how far behind it is.
absl::Status AwaitReplayed(postgres::SqlConnection* standby, const postgres::ConnectOptions& source,
                           std::chrono::milliseconds patience);

}  // namespace walpost::operations
