#include "operations/emit.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "operations/trusted_owner.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using postgres::Cell;
using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SqlConnection;

// One INSERT, put together for the columns that the table has.
class Insert {
 public:
  Insert(const outbox::TableOptions& table, std::vector<Row> columns)
      : table_(table), columns_(std::move(columns)) {}

  // As the mapper: the first of `names` that the table has. A field mapped to nothing, or an
  // optional one that is not there, is left out. Without a value: a new id.
  absl::Status Set(const outbox::ColumnNames& names, bool required, const Cell& value) {
    for (const std::string& name : names) {
      for (const Row& column : columns_) {
        if (column.at(0) == name) {
          Add(name, column.at(1).value_or(""), value);
          return absl::OkStatus();
        }
      }
    }
    if (names.empty() || !required) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "table %s.%s with column %s does not exist: run `walpost init`, or correct `outboxes`",
        table_.schema, table_.table, absl::StrJoin(names, " or ")));
  }

  std::string Sql() const {
    return absl::StrFormat("INSERT INTO %s.%s (%s) VALUES (%s) RETURNING %s::text",
                           QuoteIdentifier(table_.schema), QuoteIdentifier(table_.table),
                           absl::StrJoin(names_, ", "), absl::StrJoin(values_, ", "), names_.at(0));
  }

  const std::vector<Cell>& parameters() const { return parameters_; }

 private:
  void Add(const std::string& name, const std::string& type, const Cell& value) {
    names_.push_back(QuoteIdentifier(name));
    if (!value) {
      values_.push_back("gen_random_uuid()");
      return;
    }
    parameters_.push_back(value);
    const std::string parameter = absl::StrFormat("$%u", parameters_.size());
    values_.push_back(type == "bytea" ? "convert_to(" + parameter + ", 'UTF8')" : parameter);
  }

  const outbox::TableOptions& table_;
  const std::vector<Row> columns_;  // name, type
  std::vector<std::string> names_;
  std::vector<std::string> values_;
  std::vector<Cell> parameters_;
};

absl::StatusOr<std::string> InsertEvent(const EmitOptions& options) {
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(options.source.conninfo, options.source.application_name));
  ASSIGN_OR_RETURN(
      std::vector<Row> columns,
      connection.Query(
          "SELECT attname, atttypid::regtype::text FROM pg_attribute WHERE attrelid = "
          "to_regclass($1) AND attnum > 0 AND NOT attisdropped",
          {QuoteIdentifier(options.table.schema) + "." + QuoteIdentifier(options.table.table)}));
  const outbox::ColumnMapping& mapping = options.table.columns;
  // As for an application: what a policy lets it write is written.
  RETURN_IF_ERROR(connection.Execute("SET row_security = on"));
  Insert insert(options.table, std::move(columns));
  RETURN_IF_ERROR(insert.Set(mapping.id, true, std::nullopt));
  RETURN_IF_ERROR(insert.Set(mapping.key, true, options.key));
  RETURN_IF_ERROR(insert.Set(mapping.aggregate_type, true, options.aggregate_type));
  RETURN_IF_ERROR(insert.Set(mapping.type, !options.table.type_optional, options.type));
  RETURN_IF_ERROR(insert.Set(mapping.content_type, false, options.content_type));
  RETURN_IF_ERROR(insert.Set(mapping.payload, true, options.payload));
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   connection.Query(insert.Sql(), insert.parameters()));
  return rows.at(0).at(0).value_or("");
}

absl::StatusOr<std::string> EmitMessage(const EmitOptions& options) {
  if (options.source.message_prefixes.empty()) {
    return absl::FailedPreconditionError("no messages are read: messages.prefixes is empty");
  }
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(options.source.conninfo, options.source.application_name));
  ASSIGN_OR_RETURN(
      const auto foreign,
      FindForeign(
          &connection,
          "SELECT 'schema outbox', nspowner FROM pg_namespace WHERE nspname = 'outbox' UNION ALL "
          "SELECT p.oid::regprocedure::text, p.proowner FROM pg_proc p JOIN pg_namespace n ON "
          "n.oid = p.pronamespace WHERE n.nspname = 'outbox' AND p.proname = 'emit_message'",
          {}));
  if (foreign) {
    return Rejection(*foreign);
  }
  RETURN_IF_ERROR(RequireNoCreators(&connection, {"outbox"}));
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection.Query(
          "SELECT outbox.emit_message($1::text, $2::text, $3::text, $4::text, content_type => "
          "$5::text, prefix => $6::text)::text",
          {options.type, options.aggregate_type, options.key, options.payload, options.content_type,
           options.source.message_prefixes.front()}));
  return rows.at(0).at(0).value_or("");
}

}  // namespace

Outcome Emit(const EmitOptions& options) {
  const absl::StatusOr<std::string> id =
      options.message ? EmitMessage(options) : InsertEvent(options);
  return id.ok() ? Outcome{0, *id + "\n", ""} : Failed(id.status());
}

}  // namespace walpost::operations
