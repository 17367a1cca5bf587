#include "operations/rows/truncated_row.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "envelope/dead_letter.h"
#include "outbox/kept_row.h"
#include "outbox/message_mapper.h"
#include "outbox/undeliverable.h"

namespace walpost::operations {
namespace {

using base::DeadLetter;
using outbox::TableOptions;
using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SqlConnection;

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return absl::Status(status.code(), prefix + std::string(status.message()));
}

base::WallTime CommitTime(const DeadLetter& row) {
  const std::int64_t milliseconds = row.event_time_ms != 0 ? row.event_time_ms : row.written_at_ms;
  return base::WallTime(std::chrono::milliseconds(milliseconds));
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
  // Without an id none of the table is meant.
  if (row.event_id.empty() && row.keeps_row()) {
    return FromKept(*outbox, source, row);
  }
  // It comes first: it may have been corrected.
  absl::StatusOr<DeadLetter> whole = FromTable(*outbox, source, row);
  return absl::IsNotFound(whole.status()) && row.keeps_row() ? FromKept(*outbox, source, row)
                                                             : whole;
}

absl::StatusOr<DeadLetter> TruncatedRow::FromTable(const envelope::OutboxOptions& outbox,
                                                   std::uint32_t source, const DeadLetter& row) {
  absl::StatusOr<DeadLetter> whole = FromTableLocked(outbox, source, row);
  RETURN_IF_ERROR(connection_->Execute("ROLLBACK"));
  return whole;
}

absl::StatusOr<DeadLetter> TruncatedRow::FromTableLocked(const envelope::OutboxOptions& outbox,
                                                         std::uint32_t source,
                                                         const DeadLetter& row) {
  absl::StatusOr<RowEncoder> encoder =
      RowEncoder::Create(&*connection_, options_.source.publication, outbox, source, &schemas_);
  if (!encoder.ok()) {
    return Prefixed("its row is needed, and ", encoder.status());
  }
  encoder_ = *std::move(encoder);
  ASSIGN_OR_RETURN(row_, Fetch(outbox.table, row.event_id));
  const std::vector<pgoutput::Value> values = encoder_->ValuesOf(row_);
  absl::StatusOr<DeadLetter> whole = Whole(row, values);
  return absl::IsInvalidArgument(whole.status()) ? Prefixed("its row is still ", whole.status())
                                                 : whole;
}

absl::StatusOr<DeadLetter> TruncatedRow::FromKept(const envelope::OutboxOptions& outbox,
                                                  std::uint32_t source, const DeadLetter& row) {
  ASSIGN_OR_RETURN(const std::vector<DeadLetter> open,
                   dead_letters_->ReadRow(row.seq, /*whole=*/true));
  if (open.empty() || !open.front().value) {
    return absl::NotFoundError("it was closed, or made whole, meanwhile");
  }
  ASSIGN_OR_RETURN(const outbox::KeptRow kept, outbox::KeptRow::Parse(*open.front().value));
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

absl::StatusOr<Row> TruncatedRow::Fetch(const TableOptions& table, const std::string& id) {
  const std::string id_column = encoder_->ColumnOf(table.columns.id);
  if (id_column.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat("table %s.%s has no column %s",
                                                         table.schema, table.table,
                                                         absl::StrJoin(table.columns.id, " or ")));
  }
  ASSIGN_OR_RETURN(std::vector<Row> rows,
                   connection_->Query(absl::StrFormat("SELECT %s FROM %s WHERE %s = $1 LIMIT 2",
                                                      encoder_->Columns(), encoder_->table(),
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
        "table %s.%s has several rows with this id: walpost cannot know which one is meant",
        table.schema, table.table));
  }
  return std::move(rows.front());
}

}  // namespace walpost::operations
