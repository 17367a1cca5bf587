// LockPlainTable - a table whose rows are to be read with SQL, and nothing but a table.
// Why: who owns a table may put a view in its place, or add a foreign table to it, and a function of his
//   then runs with the rights of who reads it. So what is read is locked, and looked at under the lock.
// Thread: blocking.
// Errors: kNotFound without such a table; kFailedPrecondition names what is none; those of SqlConnection.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// Begins a transaction whose snapshot stays (`snapshot`, if that is not empty), and in which rows that a
// policy of row-level security hides are an error: who sends or counts rows must see them all. Where the
// server can, it then reads no view and no foreign table.
absl::Status BeginReadOnly(postgres::SqlConnection* connection, const std::string& snapshot = "");

// Until the transaction ends, which BeginReadOnly began, it is as it is. Nor may comparing its columns call
// a function of a role that is not trusted.
absl::Status LockPlainTable(postgres::SqlConnection* connection, const std::string& schema,
                            const std::string& table);

}  // namespace walpost::operations
