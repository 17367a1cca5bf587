#include "operations/rows/row_encoder.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "operations/rows/plain_table.h"

namespace walpost::operations {
namespace {

using pgoutput::Value;
using postgres::Cell;
using postgres::QuoteIdentifier;
using postgres::Row;

}  // namespace

absl::StatusOr<RowEncoder> RowEncoder::Create(postgres::SqlConnection* connection,
                                              const std::string& publication,
                                              const envelope::OutboxOptions& outbox,
                                              std::uint32_t source, envelope::SchemaTable* schemas,
                                              const std::string& snapshot) {
  RowEncoder encoder;
  const outbox::TableOptions& table = outbox.table;
  encoder.table_ = QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
  RETURN_IF_ERROR(BeginReadOnly(connection, table.schema, table.table, snapshot));
  ASSIGN_OR_RETURN(encoder.columns_, TableColumns::Read(connection, publication, table));
  RETURN_IF_ERROR(encoder.Bind(table, connection->database(), outbox, source, schemas));
  return encoder;
}

absl::StatusOr<RowEncoder> RowEncoder::CreateForKept(const pgoutput::Relation& relation,
                                                     std::string database,
                                                     const envelope::OutboxOptions& outbox,
                                                     std::uint32_t source,
                                                     envelope::SchemaTable* schemas) {
  RowEncoder encoder;
  encoder.columns_.relation = relation;
  RETURN_IF_ERROR(encoder.Bind(outbox.table, std::move(database), outbox, source, schemas));
  return encoder;
}

absl::Status RowEncoder::Bind(outbox::TableOptions table, std::string database,
                              const envelope::OutboxOptions& outbox, std::uint32_t source,
                              envelope::SchemaTable* schemas) {
  mapper_.emplace(std::move(table));
  RETURN_IF_ERROR(columns_.Bind(&*mapper_));
  encoder_.emplace(outbox.encoder, std::move(database), schemas, source);
  schemas_ = schemas;
  arena_ = std::make_unique<base::ChunkArena>();
  return absl::OkStatus();
}

std::string RowEncoder::Columns() const {
  std::vector<std::string> names;
  for (const pgoutput::Column& column : columns_.relation.columns) {
    names.push_back(QuoteIdentifier(column.name));
  }
  return absl::StrJoin(names, ", ");
}

std::vector<Value> RowEncoder::ValuesOf(const Row& row) const {
  std::vector<Value> values;
  values.reserve(width());
  for (std::size_t i = 0; i < width(); ++i) {
    const Cell& cell = row.at(i);
    values.push_back(cell ? Value{Value::Kind::kText, *cell} : Value{});
  }
  return values;
}

absl::StatusOr<envelope::Record> RowEncoder::Encode(std::span<const Value> values,
                                                    const envelope::Position& position,
                                                    const envelope::TransactionInfo& transaction) {
  if (last_) {
    arena_->Release(*last_);
    last_.reset();
  }
  if (schemas_ != nullptr && schemas_->crowded()) {
    schemas_->ForgetUnused({});
  }
  RETURN_IF_ERROR(base::Annotate(mapper_->Map(values, &event_), "no event"));
  envelope::Record record;
  RETURN_IF_ERROR(base::Annotate(
      encoder_->Encode(event_, position, transaction, arena_.get(), &record), "no record"));
  last_ = record.block;
  return record;
}

}  // namespace walpost::operations
