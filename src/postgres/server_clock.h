// The server's clock, as it is compared with the times at which transactions committed.
// Why: on a standby those are of the primary's clock, which may be ahead of its own.
// Thread: any; blocking.
#pragma once

#include "absl/status/statusor.h"
#include "base/time.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

// An SQL expression: microseconds since 1970. Nothing that committed before it was read is later.
inline constexpr char kServerClock[] =
    "(extract(epoch FROM greatest(pg_catalog.clock_timestamp(), "
    "pg_catalog.pg_last_xact_replay_timestamp())) * 1000000)::bigint";

absl::StatusOr<base::WallTime> ReadServerClock(SqlConnection* connection);

}  // namespace walpost::postgres
