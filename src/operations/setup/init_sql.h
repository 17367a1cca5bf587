// InitSql - the statements of `walpost init`, as it executes them and as it prints them.
// Thread: any; pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "operations/setup/init.h"
#include "operations/setup/slot_move.h"
#include "postgres/connect.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// SchemaFiles - the files of sql/ that a set-up needs, as they are applied.
// Why: `init` and any migration tool apply the same text; which files are in force stands in
//   walpost.schema_version, so that none is applied twice to a table in use.
// Limits: another schema than `outbox` has a name that needs no quotes.

// The newest version there is.
inline constexpr int kSchemaVersion = 5;

struct SchemaFile {
  int version = 0;
  std::string name;  // of the file
  std::string sql;
};

struct SchemaChoice {
  bool own_table = true;    // outbox.events, and what belongs to it
  bool partitioned = true;  // else one plain table
  bool messages = false;    // outbox.emit_message
  std::string schema = "outbox";
};

// In the order in which they are applied.
std::vector<SchemaFile> SchemaFiles(const SchemaChoice& choice);

// The roles owner, writer and relay, for what is there.
std::string RolesSql(const std::string& schema);

// Whether SchemaChoice::schema may have this name.
bool IsPlainName(std::string_view name);

// GapText - what `slot recreate` says it will send of a gap, and what it cannot.
// Thread: WhatCannotBeSent blocks.
// Errors: those of SqlConnection.
std::string WhatIsSent(const RecreateOptions& options, const Gap& gap);

// Of a table that keeps nothing there is nothing to send.
absl::StatusOr<std::string> WhatCannotBeSent(const InitOptions& options,
                                             postgres::SqlConnection* connection);

// Whether init makes it.
bool IsOwnTable(const InitOptions& options, const postgres::SourceTable& table);

SchemaChoice Choice(const InitOptions& options);

std::string TableSql(const postgres::SourceTable& table);

// Of a table that has none yet; from then on it is outbox.maintain's.
std::string FirstPartitionsSql(const InitOptions& options);

std::string CreatePublicationSql(const InitOptions& options);

// All of it, for a DBA to execute.
std::string PrintSql(const InitOptions& options);

// RecordPrefixes - `walpost init --with-messages`: which message prefixes the pipeline reads, in
// walpost.pipeline, where outbox.emit_message and preflight look for them.
// Why: an event that is emitted while nobody asks for its prefix is lost without a word. So a
//   prefix is recorded only where the slot keeps what is emitted from then on, and never behind the
//   back of an instance that streams without it: it holds the slot meanwhile (postgres::SlotHold).
// Thread: blocking.
// Errors: kFailedPrecondition: PostgreSQL below 14, nothing to record, no record to put it in, or a
//   slot in use.

// Before anything is changed.
absl::Status CheckMessages(const InitOptions& options, postgres::SqlConnection* connection);

// With the record and the slot in place. What was done, as a line.
absl::StatusOr<std::string> RecordPrefixes(const InitOptions& options,
                                           postgres::SqlConnection* connection);

// With or without messages of this pipeline. kFailedPrecondition where PUBLIC kept the right.
absl::Status RevokeEmit(const InitOptions& options, postgres::SqlConnection* connection);

// From then on only roles with a grant may emit, and outbox.emit_message itself. Needs a superuser.
std::string RevokeEmitSql(const InitOptions& options);

// What RecordPrefixes does, as a statement, to be printed.
std::string RecordPrefixesSql(const InitOptions& options);

}  // namespace walpost::operations
