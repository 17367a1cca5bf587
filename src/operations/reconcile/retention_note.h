// RetentionNote - what outbox.maintain has noted beside its table: what was committed before a
// position, and the lock that keeps it away.
// Why: rows from before a note that was delivered need not be looked at. Who can write a note can
//   have rows left out, and anybody may make a table of that name where he may create any.
//   outbox.maintain asks first who still needs rows, and deletes later: who comes to need them in
//   between must wait for its end.
// Thread: blocking.
// Limits: no note but where walpost made the schema, trusted roles own it, the note and
//   outbox.maintain, and nobody else may write the note. None is always right: it only means that
//   more rows are compared.
// Errors: those of SqlConnection.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "outbox/options.h"
#include "postgres/connect.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// RowsLock - keeps other walposts from sending the rows of a pipeline, and from replacing its slot.
// Why: two that make the slot anew, or send what is missing, would leave out rows that each
//   believes to be the other's, and overtake newer events. From before the old slot is dropped to
//   the note that all is sent, one session has the lock, and says at each step that it still has.
// Why a table's lock: an advisory one anybody could hold for ever; this one only the owner of
//   walpost.pipeline can take.
// Thread: one owner; blocking. Ends with the object.
class RowsLock {
 public:
  // walpost.pipeline must be there. kFailedPrecondition: somebody else has it.
  static absl::StatusOr<RowsLock> Take(const postgres::ConnectOptions& source);

  // For who may not take it. kFailedPrecondition: somebody has it.
  static absl::Status RequireFree(postgres::SqlConnection* connection);

  // kFailedPrecondition: the session has ended, and somebody else may have begun.
  absl::Status Check();

  // Executes `sql` with `parameters`, in the session of the lock, and gives it back. `sql` returns
  // a row where what was locked is still as this walpost left it; else kFailedPrecondition.
  absl::Status EndWith(const std::string& sql, const std::vector<postgres::Cell>& parameters);

 private:
  explicit RowsLock(postgres::SqlConnection connection) : connection_(std::move(connection)) {}

  postgres::SqlConnection connection_;  // in the transaction of the lock
};

struct RetentionNote {
  std::string settled;  // SQL, about a row `t`: committed before the newest note; empty = no note
  std::string warning;  // why one that is there does not count; empty = there is nothing to say
};

// Of the notes up to `end`. `connection`: with a transaction that stays open while the note counts.
absl::StatusOr<RetentionNote> FindRetentionNote(postgres::SqlConnection* connection,
                                                const outbox::TableOptions& table, base::Lsn end);

// Until the transaction of `connection` ends, no outbox.maintain of the table's schema runs; one
// that runs is waited for, as long as lock_timeout says. Nothing to lock where there is none.
// kDeadlineExceeded: it did not end in time.
absl::Status KeepRetentionAway(postgres::SqlConnection* connection,
                               const outbox::TableOptions& table);

}  // namespace walpost::operations
