// TableColumns - a table's columns as the stream announces them, from the catalog.
// Why: `check` and the verbs that read rows bind the same mapper as `run`, and must come to the same answer.
// Limits: also plain columns that the publication's column list leaves out. `run` does not stream a table whose
//   list lacks a mapped one; `tx` and `created_at` are read whether mapped or not.
// Thread: a value; Read blocks.
// Errors: Read: those of SqlConnection, kNotFound without a table. Bind: those of TableMapper::Bind.
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

}  // namespace walpost::operations
