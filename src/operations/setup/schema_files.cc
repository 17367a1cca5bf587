#include "operations/setup/schema_files.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "operations/setup/schema_scripts.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kNameBytesMax = 63;

// The files say `outbox` where the schema's name stands, and nothing else by these words.
std::string InSchema(const char* sql, const std::string& schema) {
  return absl::StrReplaceAll(sql, {{"outbox.", schema + "."},
                                   {"'outbox'", "'" + schema + "'"},
                                   {"SCHEMA outbox", "SCHEMA " + schema},
                                   {"SCHEMA IF EXISTS outbox", "SCHEMA IF EXISTS " + schema}});
}

}  // namespace

std::vector<SchemaFile> SchemaFiles(const SchemaChoice& choice) {
  CHECK(IsPlainName(choice.schema));
  std::vector<SchemaFile> files;
  for (const SchemaScript& script : kSchemaScripts) {
    const bool wanted = script.version == 1   ? true
                        : script.version == 3 ? choice.messages
                        : script.version == 4 ? choice.own_table && choice.partitioned
                                              : choice.own_table;
    if (wanted) {
      files.push_back({script.version, script.name, InSchema(script.sql, choice.schema)});
    }
  }
  return files;
}

std::string RolesSql(const std::string& schema) { return InSchema(kRolesSql, schema); }

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && !absl::ascii_isdigit(name[0]) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
         });
}

}  // namespace walpost::operations
