#include "operations/rows/row_encoder.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/status.h"
#include "envelope/control_records.h"
#include "operations/rows/table_columns.h"
#include "outbox/event.h"
#include "outbox/kept_row.h"
#include "outbox/message_mapper.h"

namespace walpost::operations {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kFramesMax = 10'000;
// Who names more schemas of which the registry says nothing must not hold up a verb for days: from
// here on some five a second are decided, as many as in the stream.
constexpr std::chrono::milliseconds kUnclearForMost{600'000};
constexpr int kHurriesMs = 100;

}  // namespace

absl::Status Framer::Open() {
  if (resolver_ == nullptr && !options_.urls.empty()) {
    auto resolver = registry::Resolver::Create(options_, framings_);
    if (!resolver.ok()) {  // says nothing about a record
      return absl::FailedPreconditionError(resolver.status().message());
    }
    resolver_ = *std::move(resolver);
  }
  return absl::OkStatus();
}

// A single answer that is not about the schema may be that of a registry that has too much to do.
absl::StatusOr<envelope::Schema> Framer::Ask(const envelope::SchemaNeed& need, bool decide) {
  for (int unclear = 1;; ++unclear) {
    const auto asked_at = steady_clock::now();
    absl::StatusOr<envelope::Schema> schema = resolver_->Resolve(need);
    if (!absl::IsAborted(schema.status())) {
      if (unclear > 1) {
        patience_.erase(need.source);  // such answers pass here
      }
      return schema;
    }
    Patience& patience = patience_[need.source];
    if (asked_at - patience.at > envelope::kSchemaUnclearKept) {
      patience.waited = std::chrono::milliseconds(0);
    }
    patience.at = asked_at;
    std::chrono::milliseconds& waited = patience.waited;
    if (unclear >= envelope::kSchemaUnclearAnswers &&
        (!decide || waited >= envelope::kSchemaUnclearFor)) {
      return decide ? absl::NotFoundError(schema.status().message()) : schema.status();
    }
    const bool hurries = waited >= kUnclearForMost;
    poll(nullptr, 0,
         hurries ? kHurriesMs : static_cast<int>(envelope::kSchemaAskAgainAfter.count()));
    waited += std::min(
        envelope::kSchemaCountedMax,
        std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - asked_at));
  }
}

absl::StatusOr<std::string> Framer::FrameFor(const envelope::SchemaNeed& need, bool decide) {
  if (options_.urls.empty()) {
    return absl::FailedPreconditionError(
        "it was meant to go out with a schema of a Schema Registry: give schema_registry.url");
  }
  RETURN_IF_ERROR(Open());
  RETURN_IF_ERROR(registry::CheckSubject(need.subject));
  const absl::StatusOr<envelope::Schema> schema = Ask(need, decide);
  if (absl::IsUnavailable(schema.status()) || absl::IsAborted(schema.status())) {
    return schema.status();
  }
  const absl::StatusOr<std::string> frame =
      schema.ok() ? FrameOf(need, *schema) : absl::StatusOr<std::string>(schema.status());
  return frame.ok() ? frame : absl::NotFoundError(frame.status().message());
}

absl::StatusOr<envelope::Record> Framer::Frame(const envelope::Record& record,
                                               const envelope::SchemaTable& schemas, bool decide) {
  if (record.schema == 0) {
    return record;
  }
  if (schemas.epoch() != epoch_ || frames_.size() >= kFramesMax) {
    frames_.clear();
    epoch_ = schemas.epoch();
  }
  const envelope::SchemaNeed& need = schemas.entry(record.schema).need;
  auto found = frames_.find(record.schema);
  if (found == frames_.end()) {
    absl::StatusOr<std::string> frame = FrameFor(need, decide);
    if (!frame.ok() && !absl::IsInvalidArgument(frame.status()) &&
        !absl::IsNotFound(frame.status())) {
      return frame.status();
    }
    found = frames_.emplace(record.schema, std::move(frame)).first;
  }
  RETURN_IF_ERROR(found->second.status());
  return Framed(record, need.framing, *found->second);
}

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

namespace {

using base::DeadLetter;
using outbox::TableOptions;
using postgres::SqlConnection;

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return absl::Status(status.code(), prefix + std::string(status.message()));
}

base::WallTime CommitTime(const DeadLetter& row) {
  const std::int64_t milliseconds = row.event_time_ms != 0 ? row.event_time_ms : row.written_at_ms;
  return base::WallTime(std::chrono::milliseconds(milliseconds));
}

// Which made the kept row; empty = its table did not say.
std::string TransactionOf(const outbox::KeptRow& kept) {
  const std::vector<pgoutput::Column>& columns = kept.relation().columns;
  for (std::size_t i = 0; i < columns.size() && i < kept.values().size(); ++i) {
    const pgoutput::Value& value = kept.values()[i];
    if (columns[i].name != kTransactionColumn || columns[i].type_oid != kTransactionType) {
      continue;
    }
    if (value.kind == pgoutput::Value::Kind::kText) {
      return std::string(value.bytes);
    }
    if (value.kind == pgoutput::Value::Kind::kBinary && value.bytes.size() == 8) {
      return absl::StrCat(base::ByteReader(value.bytes).U64());
    }
  }
  return "";
}

// Whether the row that was read last has the key and the topic that the dead letter has, as far as
// it has them.
bool HasItsKey(const DeadLetter& row, const RowEncoder& encoder) {
  const auto& key = encoder.key();
  const bool same_key =
      row.key ? key == *row.key : !key || key->size() > envelope::kTruncatedKeyBytesMax;
  return same_key && (row.topic.empty() || row.topic == encoder.topic());
}

// A parked row keeps the order of its key in its topic: with another one it would overtake, or be
// overtaken, and what is parked would have no row any more.
absl::Status CheckPlace(const envelope::Record& record, const DeadLetter& row) {
  const bool same_topic = record.topic == row.topic;
  if (!row.parked || (same_topic && record.key == row.key)) {
    return absl::OkStatus();
  }
  const std::string now =
      same_topic ? "its key is another one now than the parked one"
                 : absl::StrFormat("its topic is '%s' now, and its key is parked in another one",
                                   record.topic);
  return absl::FailedPreconditionError(
      now +
      ": discard this event alone, then send its row: `walpost replay --in-place --id` with "
      "its id. Or let the row have its topic and key of before");
}

}  // namespace

absl::StatusOr<DeadLetter> TruncatedRow::Read(const DeadLetter& row) {
  if (row.source.empty()) {
    return absl::FailedPreconditionError(
        "it is about no single event: docs/runbook.md, \"Send events again\", sends what was "
        "skipped; then discard it");
  }
  if (outbox::IsMessageLabel(row.source)) {
    return absl::FailedPreconditionError(
        "it was a logical message, which is in no table: have the application emit it again, then "
        "discard it");
  }
  if (row.reason == outbox::kIdTooLong) {
    return absl::FailedPreconditionError(
        "its id is too long for a record: give its row another one, discard this, then send the "
        "row: `walpost replay --missing --in-place`");
  }
  const auto outbox = std::find_if(
      options_.outboxes.begin(), options_.outboxes.end(), [&](const envelope::OutboxOptions& each) {
        return each.table.schema + "." + each.table.table == row.source;
      });
  if (outbox == options_.outboxes.end()) {
    return absl::NotFoundError(absl::StrFormat(
        "its row is needed, and table %s is not among the configured outboxes", row.source));
  }
  if (!connection_) {
    ASSIGN_OR_RETURN(connection_, SqlConnection::Connect(options_.source.conninfo,
                                                         options_.source.application_name));
  }
  const auto source = static_cast<std::uint32_t>(outbox - options_.outboxes.begin());
  if (!row.keeps_row()) {
    return FromTable(*outbox, source, row, "");
  }
  ASSIGN_OR_RETURN(const std::string bytes, ReadKept(row));
  ASSIGN_OR_RETURN(const outbox::KeptRow kept, outbox::KeptRow::Parse(bytes));
  // Without an id none of the table is meant.
  if (row.event_id.empty()) {
    return FromKept(*outbox, source, row, kept);
  }
  const std::string tx = TransactionOf(kept);
  if (tx.empty()) {
    absl::StatusOr<DeadLetter> whole = FromKept(*outbox, source, row, kept);
    if (whole.ok()) {
      return whole;
    }
    absl::StatusOr<DeadLetter> corrected = FromTable(*outbox, source, row, tx);
    return absl::IsNotFound(corrected.status()) ? whole : corrected;
  }
  // It comes first: it may have been corrected.
  absl::StatusOr<DeadLetter> whole = FromTable(*outbox, source, row, tx);
  return absl::IsNotFound(whole.status()) ? FromKept(*outbox, source, row, kept) : whole;
}

absl::StatusOr<DeadLetter> TruncatedRow::FromTable(const envelope::OutboxOptions& outbox,
                                                   std::uint32_t source, const DeadLetter& row,
                                                   const std::string& tx) {
  absl::StatusOr<DeadLetter> whole = FromTableLocked(outbox, source, row, tx);
  RETURN_IF_ERROR(connection_->Execute("ROLLBACK"));
  return whole;
}

absl::StatusOr<DeadLetter> TruncatedRow::FromTableLocked(const envelope::OutboxOptions& outbox,
                                                         std::uint32_t source,
                                                         const DeadLetter& row,
                                                         const std::string& tx) {
  absl::StatusOr<RowEncoder> encoder =
      RowEncoder::Create(&*connection_, options_.source.publication, outbox, source, &schemas_);
  if (!encoder.ok()) {
    return Prefixed("its row is needed, and ", encoder.status());
  }
  encoder_ = *std::move(encoder);
  ASSIGN_OR_RETURN(row_, Fetch(outbox.table, row, tx));
  const std::vector<pgoutput::Value> values = encoder_->ValuesOf(row_);
  absl::StatusOr<DeadLetter> whole = Whole(row, values);
  return absl::IsInvalidArgument(whole.status()) ? Prefixed("its row is still ", whole.status())
                                                 : whole;
}

absl::StatusOr<std::string> TruncatedRow::ReadKept(const DeadLetter& row) {
  ASSIGN_OR_RETURN(std::vector<DeadLetter> open, dead_letters_->ReadRow(row.seq, /*whole=*/true));
  if (open.empty() || !open.front().value) {
    return absl::NotFoundError("it was closed, or made whole, meanwhile");
  }
  return *std::move(open.front().value);
}

absl::StatusOr<DeadLetter> TruncatedRow::FromKept(const envelope::OutboxOptions& outbox,
                                                  std::uint32_t source, const DeadLetter& row,
                                                  const outbox::KeptRow& kept) {
  const std::string gone = absl::StrFormat(
      "its row is no longer in table %s, and as its dead letter keeps it, ", row.source);
  absl::StatusOr<RowEncoder> encoder = RowEncoder::CreateForKept(
      kept.relation(), connection_->database(), outbox, source, &schemas_);
  if (!encoder.ok()) {
    return Prefixed(gone, encoder.status());
  }
  encoder_ = *std::move(encoder);
  absl::StatusOr<DeadLetter> whole = Whole(row, kept.values());
  return absl::IsInvalidArgument(whole.status()) ? Prefixed(gone + "it is still ", whole.status())
                                                 : whole;
}

// Of what the encoder reads.
absl::StatusOr<DeadLetter> TruncatedRow::Whole(const DeadLetter& row,
                                               std::span<const pgoutput::Value> values) {
  envelope::Position position;  // none, when a verb sent its row beside the stream
  if (!row.position.empty()) {
    ASSIGN_OR_RETURN(position, envelope::Position::Parse(row.position));
  }
  ASSIGN_OR_RETURN(
      const envelope::Record record,
      encoder_->Encode(values, position, envelope::TransactionInfo{{}, CommitTime(row)}));
  RETURN_IF_ERROR(CheckPlace(record, row));
  DeadLetter whole = row;
  whole.truncated_bytes.reset();
  whole.value.reset();
  whole.topic = std::string(record.topic);
  whole.key.reset();
  whole.partition = record.partition;
  whole.event_time_ms = record.timestamp_ms;
  envelope::TakeRecord(record, &whole, DeadLetter::kOnlyRecordBytesMax);
  if (row.position.empty()) {
    std::erase_if(whole.headers,
                  [](const auto& header) { return header.name == "walpost-position"; });
  }
  if (whole.truncated_bytes) {
    return absl::FailedPreconditionError(
        absl::StrFormat("its record is larger than a dead letter may be, %u bytes",
                        DeadLetter::kOnlyRecordBytesMax));
  }
  if (record.schema != 0) {
    whole.schema = envelope::NeedAsText(schemas_.entry(record.schema).need);
  }
  return whole;
}

absl::StatusOr<Row> TruncatedRow::Fetch(const TableOptions& table, const DeadLetter& row,
                                        const std::string& tx) {
  const std::string id_column = encoder_->ColumnOf(table.columns.id);
  if (id_column.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat("table %s has no column %s", row.source,
                                                         absl::StrJoin(table.columns.id, " or ")));
  }
  std::string sql =
      absl::StrFormat("SELECT %s FROM %s WHERE %s = %s", encoder_->Columns(), encoder_->table(),
                      QuoteIdentifier(id_column), postgres::QuoteLiteral(row.event_id));
  if (!tx.empty()) {
    if (!encoder_->HasColumn(kTransactionColumn, kTransactionType)) {
      return absl::NotFoundError(absl::StrFormat("table %s has no column tx any more", row.source));
    }
    sql += absl::StrFormat(" AND %s = %s", kTransactionColumn, postgres::QuoteLiteral(tx));
  }
  std::uint64_t found = 0;
  std::uint64_t alike = 0;
  std::optional<Row> first;
  std::optional<Row> own;
  RETURN_IF_ERROR(connection_->ForEachRow(sql, [&](const Row& candidate) {
    if (found++ == 0 && !tx.empty()) {
      first = candidate;
    }
    // Whether it becomes a record is asked later: here for its key and topic alone.
    (void)encoder_->Encode(encoder_->ValuesOf(candidate), {}, {});
    if (HasItsKey(row, *encoder_) && alike++ == 0) {
      own = candidate;
    }
    return absl::OkStatus();
  }));
  if (alike == 1) {
    return *std::move(own);
  }
  if (found == 1 && first) {
    return *std::move(first);
  }
  if (found == 0) {
    return absl::NotFoundError(
        absl::StrFormat("its row is needed, and is no longer in table %s: only `walpost dlq "
                        "discard` is left",
                        row.source));
  }
  if (!tx.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("table %s has several rows of its transaction with its id", row.source));
  }
  return absl::FailedPreconditionError(
      alike > 1
          ? absl::StrFormat(
                "table %s has several rows with this id: walpost cannot know which one is meant",
                row.source)
          : absl::StrFormat(
                "what table %s has with its id has another topic or key. Where that is its row, "
                "corrected, discard this event alone, then send the row: `walpost replay "
                "--in-place --id` with its id",
                row.source));
}

}  // namespace walpost::operations
