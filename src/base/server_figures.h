// ServerFigures - what an SQL connection read about the slot, its WAL and the outbox tables.
// Why here: postgres fills it in, observe shows it; neither may use the other.
// Thread: a value.   Units: bytes, and times since 1970. Absent = the server does not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::base {

struct OutboxPartitions {
  std::string table;  // "schema.table"
  std::uint64_t count = 0;
  // Of those with bounds in time; zero = there is none.
  WallTime oldest_end;
  WallTime newest_end;
};

struct SlotFigures {
  bool active = false;
  std::string wal_status;           // reserved, extended, unreserved, lost
  std::string invalidation_reason;  // empty = it is valid
  std::uint64_t retained_bytes = 0;
  std::optional<std::uint64_t> safe_wal_bytes;  // absent = no limit
  // Of pg_stat_replication_slots, since 14.
  std::optional<std::uint64_t> spilled_transactions;
  std::optional<std::uint64_t> spilled_bytes;
  std::optional<std::uint64_t> decoded_bytes;

  bool lost() const { return wal_status == "lost" || !invalidation_reason.empty(); }
};

struct ServerFigures {
  std::uint64_t system_identifier = 0;
  bool in_recovery = false;
  Lsn wal_lsn;  // written or, by a standby, received
  // Absent = there is none of that name. Never the copy that a standby keeps for a failover.
  std::optional<SlotFigures> slot;
  std::vector<OutboxPartitions> partitions;  // of the outbox tables that are partitioned
};

}  // namespace walpost::base
