#include "operations/rows/table_columns.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "postgres/sent_columns.h"

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

}  // namespace walpost::operations
