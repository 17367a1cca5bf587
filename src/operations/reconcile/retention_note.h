// RetentionNote - what outbox.maintain has noted beside its table: what was committed before a position,
// and the lock that keeps it away.
// Why: rows from before a note that was delivered need not be looked at. Who can write a note can have
//   rows left out, and anybody may make a table of that name where he may create any.
//   outbox.maintain asks first who still needs rows, and deletes later: who comes to need them in
//   between must wait for its end.
// Thread: blocking.
// Limits: no note but where walpost made the schema, trusted roles own it, the note and outbox.maintain, and
//   nobody else may write the note.
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
  std::string settled;  // SQL, about a row `t`: committed before the newest note; empty = no note
  std::string warning;  // why one that is there does not count; empty = there is nothing to say
};

// Of the notes up to `end`. `connection`: with a transaction that stays open while the note counts.
absl::StatusOr<RetentionNote> FindRetentionNote(postgres::SqlConnection* connection,
                                                const outbox::TableOptions& table, base::Lsn end);

// Until the transaction of `connection` ends, no outbox.maintain of the table's schema runs; one that runs
// is waited for, as long as lock_timeout says. Nothing to lock where there is none.
// kDeadlineExceeded: it did not end in time.
absl::Status KeepRetentionAway(postgres::SqlConnection* connection,
                               const outbox::TableOptions& table);

}  // namespace walpost::operations
