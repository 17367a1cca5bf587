// RowsLock - keeps other walposts from sending the rows of a pipeline, and from replacing its slot.
// Why: two that make the slot anew, or send what is missing, would leave out rows that each believes to be
//   the other's, and overtake newer events. From before the old slot is dropped to the note that all is
//   sent, one session has the lock, and says at each step that it still has.
// Why a table's lock: an advisory one anybody could hold for ever; this one only the owner of
//   walpost.pipeline can take.
// Thread: one owner; blocking. Ends with the object.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connect.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

class RowsLock {
 public:
  // walpost.pipeline must be there. kFailedPrecondition: somebody else has it.
  static absl::StatusOr<RowsLock> Take(const postgres::ConnectOptions& source);

  // For who may not take it. kFailedPrecondition: somebody has it.
  static absl::Status RequireFree(postgres::SqlConnection* connection);

  // kFailedPrecondition: the session has ended, and somebody else may have begun.
  absl::Status Check();

  // Executes `sql` with `parameters`, in the session of the lock, and gives it back. `sql` returns a row
  // where what was locked is still as this walpost left it; else kFailedPrecondition.
  absl::Status EndWith(const std::string& sql, const std::vector<postgres::Cell>& parameters);

 private:
  explicit RowsLock(postgres::SqlConnection connection) : connection_(std::move(connection)) {}

  postgres::SqlConnection connection_;  // in the transaction of the lock
};

}  // namespace walpost::operations
