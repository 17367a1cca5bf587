// PipelineRecord - the row of walpost.pipeline: that this pipeline was set up, where, and from
// which position.
// Why: it distinguishes a lost slot from one that was never made; neither `run` nor `init` may
//   create a slot in place of a lost one.
// Thread: blocking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "postgres/preflight.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// published - whether a publication brings the rows of the outboxes, and did so before a slot
// began.
// Why: the server decides with the catalogs of each transaction what it sends. A slot that is older
//   than what publishes a table lacks the rows of the time between, and nothing in the stream shows
//   it.
// Thread: any; blocking.
// Errors: kFailedPrecondition says what to do; else as SqlConnection.

// The publication is there, publishes inserts, and has every outbox, under the outbox's own name.
// kNotFound: there is no such publication.
absl::Status RequirePublished(postgres::SqlConnection* connection,
                              const postgres::ConnectOptions& source);

// Its owner may take an outbox out of it. kFailedPrecondition: a role that is not trusted, and has
// not the rights of each outbox's owner.
absl::Status RequireTrustedPublication(postgres::SqlConnection* connection,
                                       const postgres::ConnectOptions& source);

// For a slot of which walpost.pipeline knows nothing: all that publishes an outbox is older than
// what the slot has still to read.
absl::Status RequireOlderThanSlot(postgres::SqlConnection* connection,
                                  const postgres::ConnectOptions& source);

struct PipelineRecord {
  std::string name;
  std::string slot;
  std::string publication;
  std::string system_identifier;
  std::string consistent_point;
  std::optional<std::string> snapshot;
  bool backfilled = true;
  std::optional<std::string> gap;  // JSON, of a gap that is being closed: see Backfill
  base::Lsn delivered = {};        // read only; 0/0 = not noted

  // False: a first backfill was recorded, and interrupted before it recorded its slot.
  bool SlotWasMade() const { return consistent_point != base::Lsn().ToString(); }
};

// By name or by slot; nullopt when there is none, or no such table yet.
absl::StatusOr<std::optional<PipelineRecord>> FindRecord(postgres::SqlConnection* connection,
                                                         const std::string& name,
                                                         const std::string& slot);

// kFailedPrecondition: it is another pipeline's, or on another slot, so `name` or `source.slot` was
// edited. Progress, dead letters and parked keys go by the name.
absl::Status CheckFits(const PipelineRecord& record, const std::string& name,
                       const std::string& slot);

// The same of the record that is there, if this role may read it.
absl::Status CheckRecordFits(postgres::SqlConnection* connection, const std::string& name,
                             const std::string& slot);

// In place of what was recorded for the name, if anything was. What lies before the consistent
// point counts as delivered, once it is backfilled.
absl::Status WriteRecord(postgres::SqlConnection* connection, const PipelineRecord& record);

// Streaming goes on at `position`, by an operator's decision. On a standby, and where the column or
// the right is missing, it is not written, and the next connect of `run` does it, or nobody.
absl::Status RecordDelivered(postgres::SqlConnection* connection, const std::string& name,
                             base::Lsn position);

// Dead letters of the cluster that `record` names, open and closed, are this cluster's from here
// on: they came along with the data, and nothing else holds what is in them. How many of them are
// open.
absl::StatusOr<std::uint64_t> TakeOverDeadLetters(postgres::SqlConnection* connection,
                                                  const PipelineRecord& record);

// Before other tables or prefixes count as events: kFailedPrecondition while an event that has a
// row commits at `from` or later. It comes again, and walpost would not know it by its position.
absl::Status CheckDeadLettersFrom(postgres::SqlConnection* connection, const std::string& name,
                                  base::Lsn from);

// This cluster is the recorded one from here on, and streaming goes on there at `position`.
// `record` is what was recorded before; its dead letters are taken over in the same transaction:
// how many are open.
absl::StatusOr<std::uint64_t> RecordCluster(postgres::SqlConnection* connection,
                                            const PipelineRecord& record,
                                            const std::string& system_identifier,
                                            base::Lsn position);

// The line that says so; empty = none.
std::string TakenOver(const PipelineRecord& record, std::uint64_t open);

// From here on `run` does not stream before the gap is closed.
absl::Status RecordGap(postgres::SqlConnection* connection, const std::string& name,
                       const std::string& gap);

// The message prefixes it was set up with, in their order; none when there is no such record.
absl::StatusOr<std::vector<std::string>> ReadPrefixes(postgres::SqlConnection* connection,
                                                      const std::string& name);

absl::StatusOr<std::string> ReadSystemIdentifier(postgres::SqlConnection* connection);

// From walpost.schema_version: the files of sql/ that were applied; none when that table is not
// there.
absl::StatusOr<std::vector<int>> AppliedVersions(postgres::SqlConnection* connection);

// Those of them that count for a schema: of the files that make something in it, none when it has
// no events, or no emit_message, as where another schema of the database has them.
absl::StatusOr<std::vector<int>> AppliedIn(const std::string& schema,
                                           postgres::SqlConnection* connection);

// slot_missing, or init_incomplete where it was never made: what it means and the way out.
absl::Status SlotMissing(const PipelineRecord& record);

}  // namespace walpost::operations
