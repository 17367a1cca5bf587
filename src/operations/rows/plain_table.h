// BeginReadOnly - a transaction for the rows of one table, and nothing but a table.
// Why: who owns a table may put a view in its place, or add a foreign table to it, and a function of his
//   then runs with the rights of who reads it. So what is read is locked, and looked at under the lock.
//   The lock comes before the snapshot: to an older one, a table that was rewritten meanwhile is empty.
//   Hence one call for both.
// Thread: blocking.
// Errors: kNotFound without such a table; kFailedPrecondition names what is none; those of SqlConnection.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// Begins a transaction in which the table is as it is until the transaction ends, and whose snapshot stays.
// Rows that a policy of row-level security hides are an error: who sends or counts rows must see them all.
// Where the server can, it then reads no view and no foreign table. Nor may comparing the table's columns
// call a function of a role that is not trusted.
// `snapshot`: an exported one, if not empty. The caller then holds a lock on the table from before it.
// After an error the transaction may be open.
absl::Status BeginReadOnly(postgres::SqlConnection* connection, const std::string& schema,
                           const std::string& table, const std::string& snapshot = "");

}  // namespace walpost::operations
