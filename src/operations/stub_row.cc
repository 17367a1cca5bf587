#include "operations/stub_row.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "outbox/message_mapper.h"

namespace walpost::operations {
namespace {

using envelope::Letter;
using outbox::TableOptions;
using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SqlConnection;

absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  return absl::Status(status.code(), prefix + std::string(status.message()));
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
  const auto source = static_cast<std::uint32_t>(outbox - options_.outboxes.begin());
  absl::StatusOr<RowEncoder> encoder =
      RowEncoder::Create(&*connection_, *outbox, source, &schemas_, to_topic);
  if (!encoder.ok()) {
    return Prefixed("its row is needed, and ", encoder.status());
  }
  encoder_ = *std::move(encoder);
  ASSIGN_OR_RETURN(row_, Fetch(outbox->table, letter.id));
  ASSIGN_OR_RETURN(const envelope::Position position, envelope::Position::Parse(letter.position));
  absl::StatusOr<envelope::Record> record = encoder_->Encode(
      row_, position, envelope::TransactionInfo{{}, CommitTime(letter, commit_time_ms)});
  return record.ok() ? record : Prefixed("its row is still ", record.status());
}

absl::StatusOr<Row> StubRow::Fetch(const TableOptions& table, const std::string& id) {
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
        "table %s.%s has several rows with this id: which one is meant cannot be told",
        table.schema, table.table));
  }
  return std::move(rows.front());
}

}  // namespace walpost::operations
