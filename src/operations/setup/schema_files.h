// SchemaFiles - the files of sql/ that a set-up needs, as they are applied.
// Why: `init` and any migration tool apply the same text; which files are in force stands in
//   walpost.schema_version, so that none is applied twice to a table in use.
// Limits: another schema than `outbox` has a name that needs no quotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace walpost::operations {

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

}  // namespace walpost::operations
