// TableColumns - a table's columns as the stream announces them, from the catalog.
// Why: `check` and the verbs that read rows bind the same mapper as `run`, and must come to the
// same answer.
// Limits: also plain columns that the publication's column list leaves out. `run` does not stream a
//   table whose list lacks a mapped one; `tx` and `created_at` are read whether mapped or not.
// Thread: a value; Read blocks.
// Errors: Read: those of SqlConnection, kNotFound without a table. Bind: those of
// TableMapper::Bind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "outbox/table_mapper.h"
#include "pgoutput/message.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

inline constexpr std::uint32_t kUuidType = 2950;

struct TableColumns {
  struct Type {
    std::uint32_t oid = 0;
    std::string schema;  // of the type below a domain; empty for pg_catalog
    std::string name;
  };

  static absl::StatusOr<TableColumns> Read(postgres::SqlConnection* connection,
                                           const std::string& publication,
                                           const outbox::TableOptions& table);

  absl::Status Bind(outbox::TableMapper* mapper) const;

  // The first that the table has; empty = none.
  std::string Find(const outbox::ColumnNames& names) const;
  // Of that type, below a domain.
  bool Has(const std::string& name, std::uint32_t type_oid) const;

  pgoutput::Relation relation;
  std::vector<std::uint32_t> base_types;  // of each column, below its domain
  std::vector<Type> types;                // made by users
  std::vector<std::uint32_t> text_types;
};

// BeginReadOnly - a transaction for the rows of one table, and nothing but a table.
// Why: who owns a table may put a view in its place, or add a foreign table to it, and a function
//   of his then runs with the rights of who reads it. So what is read is locked, and looked at
//   under the lock. The lock comes before the snapshot: to an older one, a table that was rewritten
//   meanwhile is empty. Hence one call for both.
// Thread: blocking.
// Errors: kNotFound without such a table; kFailedPrecondition names what is none; those of
// SqlConnection.

// Begins a transaction in which the table is as it is until the transaction ends, and whose
// snapshot stays. Rows that a policy of row-level security hides are an error: who sends or counts
// rows must see them all. Where the server can, it then reads no view and no foreign table. Nor may
// comparing the table's columns call a function of a role that is not trusted. `snapshot`: an
// exported one, if not empty. The caller then holds a lock on the table from before it. After an
// error the transaction may be open.
absl::Status BeginReadOnly(postgres::SqlConnection* connection, const std::string& schema,
                           const std::string& table, const std::string& snapshot = "");

}  // namespace walpost::operations
