#include "operations/row_encoder.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace walpost::operations {
namespace {

using pgoutput::Value;
using postgres::Cell;
using postgres::QuoteIdentifier;
using postgres::Row;

absl::StatusOr<pgoutput::Relation> Describe(postgres::SqlConnection* connection,
                                            const outbox::TableOptions& table,
                                            const std::string& quoted) {
  // A domain's values have the form of the type below it.
  ASSIGN_OR_RETURN(
      const std::vector<Row> columns,
      connection->Query(
          "SELECT a.attname, CASE WHEN t.typbasetype <> 0 THEN t.typbasetype ELSE t.oid END "
          "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
          "WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped "
          "ORDER BY a.attnum",
          {quoted}));
  if (columns.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("table %s.%s does not exist", table.schema, table.table));
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

}  // namespace

absl::StatusOr<RowEncoder> RowEncoder::Create(postgres::SqlConnection* connection,
                                              const DlqOutbox& outbox, std::uint32_t source,
                                              envelope::SchemaTable* schemas,
                                              const std::string& to_topic) {
  RowEncoder encoder;
  outbox::TableOptions table = outbox.table;
  encoder.table_ = QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
  ASSIGN_OR_RETURN(encoder.relation_, Describe(connection, table, encoder.table_));
  if (!to_topic.empty()) {
    // The row's own topic may be what is wrong with it.
    table.topic = to_topic;
    table.columns.topic.clear();
  }
  encoder.mapper_.emplace(std::move(table));
  RETURN_IF_ERROR(encoder.mapper_->Bind(encoder.relation_));
  encoder.encoder_.emplace(outbox.encoder, connection->database(), schemas, source);
  encoder.arena_ = std::make_unique<base::ChunkArena>();
  return encoder;
}

std::string RowEncoder::Columns() const {
  std::vector<std::string> names;
  for (const pgoutput::Column& column : relation_.columns) {
    names.push_back(QuoteIdentifier(column.name));
  }
  return absl::StrJoin(names, ", ");
}

std::string RowEncoder::ColumnOf(const outbox::ColumnNames& names) const {
  for (const std::string& name : names) {
    for (const pgoutput::Column& column : relation_.columns) {
      if (column.name == name) {
        return name;
      }
    }
  }
  return "";
}

bool RowEncoder::HasColumn(const std::string& name, std::uint32_t type_oid) const {
  return std::any_of(relation_.columns.begin(), relation_.columns.end(),
                     [&](const pgoutput::Column& column) {
                       return column.name == name && column.type_oid == type_oid;
                     });
}

absl::StatusOr<envelope::Record> RowEncoder::Encode(const Row& row,
                                                    const envelope::Position& position,
                                                    const envelope::TransactionInfo& transaction) {
  if (last_) {
    arena_->Release(*last_);
    last_.reset();
  }
  std::vector<Value> values;
  values.reserve(width());
  for (std::size_t i = 0; i < width(); ++i) {
    const Cell& cell = row.at(i);
    values.push_back(cell ? Value{Value::Kind::kText, *cell} : Value{});
  }
  outbox::Event event;
  RETURN_IF_ERROR(base::Annotate(mapper_->Map(values, &event), "no event"));
  envelope::Record record;
  RETURN_IF_ERROR(base::Annotate(
      encoder_->Encode(event, position, transaction, arena_.get(), &record), "no record"));
  last_ = record.block;
  return record;
}

}  // namespace walpost::operations
