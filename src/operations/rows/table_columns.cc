#include "operations/rows/table_columns.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/trusted_owner.h"
#include "postgres/failure.h"
#include "postgres/preflight.h"

namespace walpost::operations {
namespace {

using postgres::NumberOf;
using postgres::Row;

// The server describes types in its stream from this number on.
constexpr std::uint32_t kFirstDescribedType = 10'000;

}  // namespace

absl::StatusOr<TableColumns> TableColumns::Read(postgres::SqlConnection* connection,
                                                const std::string& publication,
                                                const outbox::TableOptions& table) {
  const std::string sent = postgres::SentColumnSql(
      connection->server_version(), "(SELECT oid FROM pg_catalog.pg_publication WHERE pubname = " +
                                        postgres::QuoteLiteral(publication) + ")");
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(
          "SELECT a.attname, a.atttypid, a.atttypmod, b.oid, CASE n.nspname WHEN 'pg_catalog' THEN "
          "'' ELSE n.nspname END, b.typname, p.prosrc IN ('enum_send', 'textsend') "
          "FROM pg_attribute a CROSS JOIN LATERAL (WITH RECURSIVE d (oid) AS (SELECT a.atttypid "
          "UNION ALL SELECT t.typbasetype FROM pg_type t JOIN d ON t.oid = d.oid WHERE t.typtype = "
          "'d') SELECT t.* FROM d JOIN pg_type t ON t.oid = d.oid WHERE t.typtype <> 'd') b "
          "JOIN pg_namespace n ON n.oid = b.typnamespace LEFT JOIN pg_proc p ON p.oid = b.typsend "
          "WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND "
          "(a.attgenerated = '' OR " +
              sent + ") ORDER BY a.attnum",
          {postgres::QuoteIdentifier(table.schema) + "." +
           postgres::QuoteIdentifier(table.table)}));
  if (rows.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("table %s.%s does not exist", table.schema, table.table));
  }
  TableColumns columns;
  columns.relation.schema = table.schema;
  columns.relation.name = table.table;
  for (const Row& row : rows) {
    pgoutput::Column column;
    column.name = row.at(0).value_or("");
    column.type_oid = NumberOf<std::uint32_t>(row.at(1));
    column.type_modifier = NumberOf<std::int32_t>(row.at(2));
    columns.base_types.push_back(NumberOf<std::uint32_t>(row.at(3)));
    if (column.type_oid >= kFirstDescribedType) {
      columns.types.push_back({column.type_oid, row.at(4).value_or(""), row.at(5).value_or("")});
    }
    if (row.at(6) == "t") {
      columns.text_types.push_back(column.type_oid);
    }
    columns.relation.columns.push_back(std::move(column));
  }
  std::sort(columns.text_types.begin(), columns.text_types.end());
  return columns;
}

absl::Status TableColumns::Bind(outbox::TableMapper* mapper) const {
  for (const Type& type : types) {
    mapper->Learn(pgoutput::Type{type.oid, type.schema, type.name});
  }
  mapper->SetTextTypes(text_types);
  return mapper->Bind(relation);
}

std::string TableColumns::Find(const outbox::ColumnNames& names) const {
  for (const std::string& name : names) {
    for (const pgoutput::Column& column : relation.columns) {
      if (column.name == name) {
        return name;
      }
    }
  }
  return "";
}

bool TableColumns::Has(const std::string& name, std::uint32_t type_oid) const {
  for (std::size_t i = 0; i < relation.columns.size(); ++i) {
    if (relation.columns[i].name == name && base_types[i] == type_oid) {
      return true;
    }
  }
  return false;
}

namespace {

using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
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
