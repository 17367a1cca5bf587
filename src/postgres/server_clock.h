// The server's clock, as it is compared with the times at which transactions committed, and its next
// transaction id.
// Why: on a standby those are of the primary, whose clock may be ahead, and who gives the ids.
// Thread: any; blocking.
#pragma once

#include "absl/status/statusor.h"
#include "base/time.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

// An SQL expression: microseconds since 1970. Nothing that the server, or the primary of a standby, committed
// before it was read is later. A server that was promoted still has the time of the last commit that it
// replayed, which may be in the future for long.
inline constexpr char kServerClock[] =
    "(extract(epoch FROM CASE WHEN pg_catalog.pg_is_in_recovery() THEN "
    "greatest(pg_catalog.clock_timestamp(), pg_catalog.pg_last_xact_replay_timestamp()) ELSE "
    "pg_catalog.clock_timestamp() END) * 1000000)::bigint";

// An SQL expression: the end of a snapshot, behind the newest transaction that is over. Newer ones may be open.
inline constexpr char kSnapshotEnd[] =
    "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())";

// An SQL expression: an id that no transaction had before. It takes one, which a server that is short of ids
// rejects.
inline constexpr char kNextXid[] =
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN "
    "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) ELSE "
    "pg_catalog.pg_current_xact_id() END";

absl::StatusOr<base::WallTime> ReadServerClock(SqlConnection* connection);

}  // namespace walpost::postgres
