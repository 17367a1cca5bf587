// RetentionNote - what outbox.maintain has noted beside its table: what was committed before a position.
// Why: rows from before a note that was delivered need not be looked at. Who can write a note can have
//   rows left out, and anybody may make a table of that name where he may create any.
// Thread: blocking.
// Limits: none but where walpost made the schema, and trusted roles own it, the note and outbox.maintain.
//   None is always right: it only means that more rows are compared.
// Errors: those of SqlConnection.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

struct RetentionNote {
  std::string snapshot;  // the newest; empty = none
  std::string warning;   // why one that is there does not count; empty = there is nothing to say
};

// Of the notes up to `end`. `connection`: with a transaction that stays open while the note counts.
absl::StatusOr<RetentionNote> FindRetentionNote(postgres::SqlConnection* connection,
                                                const outbox::TableOptions& table, base::Lsn end);

}  // namespace walpost::operations
