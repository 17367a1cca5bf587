#include "operations/plain_table.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::operations {
namespace {

using postgres::QuoteLiteral;
using postgres::Row;
using postgres::SqlConnection;

constexpr char kNoTable[] = "42P01";
constexpr char kNoSchema[] = "3F000";
constexpr char kNotLockable[] = "42809";  // a materialized view, a foreign table, an index

absl::Status NoTable(const std::string& name) {
  return absl::NotFoundError(absl::StrFormat("table %s does not exist", name));
}

absl::Status NotPlain(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s: rows are read from tables only, since what stands behind anything else would run with "
      "the rights of who reads it (docs/security.md)",
      what));
}

}  // namespace

absl::Status BeginReadOnly(SqlConnection* connection, const std::string& snapshot) {
  // Before the transaction: its first question fixes what it sees.
  ASSIGN_OR_RETURN(const std::vector<Row> known,
                   connection->Query("SELECT FROM pg_settings WHERE name = "
                                     "'restrict_nonsystem_relation_kind'"));
  if (!known.empty()) {
    RETURN_IF_ERROR(
        connection->Execute("SET restrict_nonsystem_relation_kind = 'view, foreign-table'"));
  }
  return connection->Execute(
      "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL row_security = off" +
      (snapshot.empty() ? "" : "; SET TRANSACTION SNAPSHOT " + QuoteLiteral(snapshot)));
}

absl::Status LockPlainTable(SqlConnection* connection, const std::string& name) {
  const absl::Status locked =
      connection->Execute(absl::StrFormat("LOCK TABLE %s IN ACCESS SHARE MODE", name));
  const std::string& sqlstate = connection->last_sqlstate();
  if (sqlstate == kNoTable || sqlstate == kNoSchema) {
    return NoTable(name);
  }
  if (sqlstate == kNotLockable) {
    return NotPlain(name + " is no table");
  }
  RETURN_IF_ERROR(locked);
  ASSIGN_OR_RETURN(
      const std::vector<Row> found,
      connection->Query(
          "WITH RECURSIVE tree (oid, depth) AS (SELECT to_regclass($1)::oid, 0 UNION ALL SELECT "
          "i.inhrelid, depth + 1 FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid) SELECT "
          "coalesce(c.oid::regclass::text, $1), c.relkind, CASE c.relkind WHEN 'v' THEN 'a view' "
          "WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table' ELSE 'no table' END "
          "FROM tree LEFT JOIN pg_class c ON c.oid = tree.oid WHERE c.relkind IS NULL OR c.relkind "
          "NOT IN ('r', 'p') ORDER BY depth LIMIT 1",
          {name}));
  if (found.empty()) {
    return absl::OkStatus();
  }
  const Row& row = found[0];
  return NotPlain(row.at(0).value_or("") + (row.at(1) ? " is " + row.at(2).value_or("")
                                                      : " was put in another's place meanwhile"));
}

}  // namespace walpost::operations
