#include "operations/rows/plain_table.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/trusted_owner.h"
#include "postgres/sqlstate.h"

namespace walpost::operations {
namespace {

using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
using postgres::Row;
using postgres::SqlConnection;

constexpr char kNotLockable[] = "42809";  // a materialized view, a foreign table, an index

absl::Status NotPlain(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s: rows are read from tables only, since what stands behind anything else would run with "
      "the rights of who reads it (docs/security.md)",
      what));
}

// With all that is below it.
absl::Status RequirePlain(SqlConnection* connection, const std::string& name) {
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

// Who owns a type may make casts of it, and an operator finds one that is implicit by itself.
absl::Status RequireTrustedCasts(SqlConnection* connection, const std::string& name) {
  ASSIGN_OR_RETURN(
      const auto foreign,
      FindForeign(connection,
                  "WITH RECURSIVE types (oid) AS (SELECT atttypid FROM pg_attribute WHERE attrelid "
                  "= to_regclass($1) AND attnum > 0 AND NOT attisdropped UNION SELECT "
                  "t.typbasetype FROM types JOIN pg_type t ON t.oid = types.oid WHERE t.typtype = "
                  "'d') SELECT p.oid::regprocedure::text, p.proowner FROM types JOIN pg_cast k ON "
                  "k.castsource = types.oid AND k.castcontext = 'i' JOIN pg_proc p ON p.oid = "
                  "k.castfunc",
                  {name}));
  return foreign ? Rejection(*foreign) : absl::OkStatus();
}

absl::Status Begin(SqlConnection* connection, const std::string& snapshot) {
  // Before the transaction: its first query fixes what it sees.
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

// Takes no snapshot.
absl::Status Lock(SqlConnection* connection, const std::string& schema, const std::string& table) {
  const absl::Status locked = connection->Execute(absl::StrFormat(
      "LOCK TABLE %s.%s IN ACCESS SHARE MODE", QuoteIdentifier(schema), QuoteIdentifier(table)));
  const std::string& sqlstate = connection->last_sqlstate();
  if (sqlstate == postgres::sqlstate::kUndefinedTable ||
      sqlstate == postgres::sqlstate::kInvalidSchemaName) {
    return absl::NotFoundError(absl::StrFormat("table %s.%s does not exist", schema, table));
  }
  if (sqlstate == kNotLockable) {
    return NotPlain(absl::StrFormat("%s.%s is no table", schema, table));
  }
  return locked;
}

}  // namespace

absl::Status BeginReadOnly(SqlConnection* connection, const std::string& schema,
                           const std::string& table, const std::string& snapshot) {
  RETURN_IF_ERROR(Begin(connection, snapshot));
  RETURN_IF_ERROR(Lock(connection, schema, table));
  const std::string name = QuoteIdentifier(schema) + "." + QuoteIdentifier(table);
  RETURN_IF_ERROR(RequirePlain(connection, name));
  return RequireTrustedCasts(connection, name);
}

}  // namespace walpost::operations
