#include "operations/emit.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using postgres::Cell;
using postgres::QuoteIdentifier;
using postgres::SqlConnection;

}  // namespace

Outcome Emit(const EmitOptions& options) {
  absl::StatusOr<SqlConnection> connection =
      SqlConnection::Connect(options.source.conninfo, options.source.application_name);
  if (!connection.ok()) {
    return Failed(connection.status());
  }
  const outbox::ColumnMapping& mapping = options.table.columns;
  std::vector<std::string> columns = {QuoteIdentifier(mapping.id.at(0))};
  std::vector<std::string> values = {"gen_random_uuid()"};
  std::vector<Cell> parameters;
  const std::pair<const outbox::ColumnNames*, const std::string*> fields[] = {
      {&mapping.key, &options.key},
      {&mapping.aggregate_type, &options.aggregate_type},
      {&mapping.type, &options.type},
      {&mapping.content_type, &options.content_type}};
  for (const auto& [names, value] : fields) {
    if (!names->empty()) {
      columns.push_back(QuoteIdentifier(names->at(0)));
      parameters.emplace_back(*value);
      values.push_back(absl::StrFormat("$%u", parameters.size()));
    }
  }
  // The payload column may be bytea, json, jsonb or text: the server is asked which.
  const std::string table =
      QuoteIdentifier(options.table.schema) + "." + QuoteIdentifier(options.table.table);
  const auto type = connection->Query(
      "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND "
      "attname = $2",
      {table, mapping.payload.at(0)});
  if (!type.ok()) {
    return Failed(type.status());
  }
  if (type->empty()) {
    return Failed(absl::FailedPreconditionError(absl::StrFormat(
        "table %s.%s with column %s does not exist: run `walpost init`, or correct `outboxes`",
        options.table.schema, options.table.table, mapping.payload.at(0))));
  }
  columns.push_back(QuoteIdentifier(mapping.payload.at(0)));
  parameters.emplace_back(options.payload);
  const std::string parameter = absl::StrFormat("$%u", parameters.size());
  values.push_back(type->at(0).at(0) == "bytea" ? "convert_to(" + parameter + ", 'UTF8')"
                                                : parameter);
  const auto rows =
      connection->Query(absl::StrFormat("INSERT INTO %s (%s) VALUES (%s) RETURNING %s::text", table,
                                        absl::StrJoin(columns, ", "), absl::StrJoin(values, ", "),
                                        QuoteIdentifier(mapping.id.at(0))),
                        parameters);
  if (!rows.ok()) {
    return Failed(rows.status());
  }
  return Outcome{0, rows->at(0).at(0).value_or("") + "\n", ""};
}

}  // namespace walpost::operations
