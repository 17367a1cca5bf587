// RecordPrefixes - `walpost init --with-messages`: which message prefixes the pipeline reads, in
// walpost.pipeline, where outbox.emit_message and preflight look for them.
// Why: an event that is emitted while nobody asks for its prefix is lost without a word. So a prefix
//   is recorded only where the slot keeps what is emitted from then on, and never behind the back of
//   an instance that streams without it: it holds the slot meanwhile (postgres::SlotHold).
// Thread: blocking.
// Errors: kFailedPrecondition: PostgreSQL below 14, nothing to record, no record to put it in, or a
//   slot in use.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "operations/setup/init.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

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
