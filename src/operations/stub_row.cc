#include "operations/stub_row.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "outbox/message_mapper.h"

namespace walpost::operations {
namespace {

using envelope::Letter;
using outbox::TableOptions;
using pgoutput::Value;
using postgres::Cell;
using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SqlConnection;

std::string Quoted(const TableOptions& table) {
  return QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
}

// The first of the candidates that the table has, as the mapper chooses.
std::string IdColumn(const TableOptions& table, const pgoutput::Relation& relation) {
  for (const std::string& name : table.columns.id) {
    for (const pgoutput::Column& column : relation.columns) {
      if (column.name == name) {
        return name;
      }
    }
  }
  return "";
}

base::WallTime CommitTime(const Letter& letter, std::int64_t otherwise_ms) {
  const std::int64_t milliseconds = letter.timestamp_ms != 0 ? letter.timestamp_ms : otherwise_ms;
  return base::WallTime(std::chrono::milliseconds(milliseconds));
}

}  // namespace

absl::StatusOr<envelope::Record> StubRow::Read(const Letter& letter, std::int64_t commit_time_ms,
                                               const std::string& to_topic) {
  if (letter.table.empty()) {
    return absl::FailedPreconditionError(
        "it is about no single event: docs/runbook.md, \"Send events again\", sends what was "
        "skipped; then discard it");
  }
  if (outbox::IsMessageLabel(letter.table)) {
    return absl::FailedPreconditionError(
        "it was a logical message, which is in no table: have the application emit it again, then "
        "discard it");
  }
  const auto outbox =
      std::find_if(options_.outboxes.begin(), options_.outboxes.end(), [&](const DlqOutbox& each) {
        return each.table.schema + "." + each.table.table == letter.table;
      });
  if (outbox == options_.outboxes.end()) {
    return absl::NotFoundError(absl::StrFormat(
        "its row is needed, and table %s is not among the configured outboxes", letter.table));
  }
  if (!connection_) {
    ASSIGN_OR_RETURN(connection_, SqlConnection::Connect(options_.source.conninfo,
                                                         options_.source.application_name));
  }
  TableOptions table = outbox->table;
  ASSIGN_OR_RETURN(const pgoutput::Relation relation, Describe(table));
  ASSIGN_OR_RETURN(row_, Fetch(table, relation, letter.id));
  if (!to_topic.empty()) {
    // The row's own topic may be what is wrong with it.
    table.topic = to_topic;
    table.columns.topic.clear();
  }
  mapper_.emplace(std::move(table));
  RETURN_IF_ERROR(mapper_->Bind(relation));
  std::vector<Value> values;
  for (const Cell& cell : row_) {
    values.push_back(cell ? Value{Value::Kind::kText, *cell} : Value{});
  }
  outbox::Event event;
  RETURN_IF_ERROR(base::Annotate(mapper_->Map(values, &event), "its row is still no event"));
  ASSIGN_OR_RETURN(const envelope::Position position, envelope::Position::Parse(letter.position));
  encoder_.emplace(outbox->encoder, connection_->database(), &schemas_,
                   static_cast<std::uint32_t>(outbox - options_.outboxes.begin()));
  arena_ = std::make_unique<base::ChunkArena>();
  envelope::Record record;
  RETURN_IF_ERROR(base::Annotate(
      encoder_->Encode(event, position,
                       envelope::TransactionInfo{{}, CommitTime(letter, commit_time_ms)},
                       arena_.get(), &record),
      "its row is still no record"));
  return record;
}

absl::StatusOr<pgoutput::Relation> StubRow::Describe(const TableOptions& table) {
  // A domain's values have the form of the type below it.
  ASSIGN_OR_RETURN(
      const std::vector<Row> columns,
      connection_->Query(
          "SELECT a.attname, CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.oid END "
          "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
          "WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped "
          "ORDER BY a.attnum",
          {Quoted(table)}));
  if (columns.empty()) {
    return absl::NotFoundError(absl::StrFormat("its row is needed, and table %s.%s does not exist",
                                               table.schema, table.table));
  }
  pgoutput::Relation relation;
  relation.schema = table.schema;
  relation.name = table.table;
  for (const Row& each : columns) {
    pgoutput::Column column;
    column.name = each.at(0).value_or("");
    const std::string oid = each.at(1).value_or("0");
    std::from_chars(oid.data(), oid.data() + oid.size(), column.type_oid);
    relation.columns.push_back(std::move(column));
  }
  return relation;
}

absl::StatusOr<Row> StubRow::Fetch(const TableOptions& table, const pgoutput::Relation& relation,
                                   const std::string& id) {
  const std::string id_column = IdColumn(table, relation);
  if (id_column.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat("table %s.%s has no column %s",
                                                         table.schema, table.table,
                                                         absl::StrJoin(table.columns.id, " or ")));
  }
  std::vector<std::string> names;
  for (const pgoutput::Column& column : relation.columns) {
    names.push_back(QuoteIdentifier(column.name));
  }
  // As the columns' output functions write them, which is what the stream carries.
  ASSIGN_OR_RETURN(std::vector<Row> rows,
                   connection_->Query(absl::StrFormat("SELECT %s FROM %s WHERE %s = $1 LIMIT 2",
                                                      absl::StrJoin(names, ", "), Quoted(table),
                                                      QuoteIdentifier(id_column)),
                                      {id}));
  if (rows.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("its row is needed, and is no longer in table %s.%s: only `walpost dlq "
                        "discard` is left",
                        table.schema, table.table));
  }
  if (rows.size() > 1) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "table %s.%s has several rows with this id: which one is meant cannot be told",
        table.schema, table.table));
  }
  return std::move(rows.front());
}

}  // namespace walpost::operations
