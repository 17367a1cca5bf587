#include "operations/drain.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "envelope/letter.h"
#include "operations/pipeline_record.h"

namespace walpost::operations {
namespace {

using postgres::Cell;
using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
using postgres::Row;
using postgres::SqlConnection;
using std::chrono::milliseconds;

constexpr std::uint32_t kXid8 = 5069;
constexpr std::uint32_t kTimestamptz = 1184;
constexpr const char* kKind = "drain";
constexpr milliseconds kScanTimeout{30'000};
// Clocks of Kafka's clients need not agree to the millisecond.
constexpr std::int64_t kClockMarginMs = 60'000;
// What is selected behind the table's own columns.
constexpr std::size_t kSeq = 0;
constexpr std::size_t kTransaction = 1;
constexpr std::size_t kCreated = 2;
constexpr std::size_t kCount = 3;
// Of advisory locks: walpost's, and which.
constexpr const char* kOnlyOne = "SELECT pg_try_advisory_lock(2002874224, 1)";

std::vector<envelope::FramingOptions> FramingsOf(const DrainOptions& options) {
  std::vector<envelope::FramingOptions> framings;
  for (const DlqOutbox& outbox : options.outboxes) {
    framings.push_back(outbox.encoder.framing);
  }
  return framings;
}

std::int64_t NowMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

bool TellsItsTransaction(const RowEncoder& encoder) { return encoder.HasColumn("tx", kXid8); }

template <typename Number>
Number NumberOf(const Cell& cell) {
  Number number = 0;
  return cell && absl::SimpleAtoi(*cell, &number) ? number : 0;
}

}  // namespace

Drain::Drain(const DrainOptions& options)
    : options_(options), framer_(options.registry, FramingsOf(options)) {}

absl::Status Drain::OpenIn(const std::string& snapshot) {
  for (std::uint32_t place = 0; place < options_.outboxes.size(); ++place) {
    ASSIGN_OR_RETURN(
        SqlConnection connection,
        SqlConnection::Connect(options_.source.conninfo, options_.source.application_name));
    RETURN_IF_ERROR(
        connection.Execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
                           "SET TRANSACTION SNAPSHOT " +
                           QuoteLiteral(snapshot)));
    ASSIGN_OR_RETURN(RowEncoder encoder,
                     RowEncoder::Create(&connection, options_.outboxes[place], place, &schemas_));
    if (TellsItsTransaction(encoder)) {
      continue;
    }
    const std::string order = encoder.ColumnOf(options_.outboxes[place].table.columns.seq);
    RETURN_IF_ERROR(Open(encoder, order, "true", &connection));
    cursors_.emplace(place, std::move(connection));
  }
  return absl::OkStatus();
}

// Once the transaction is over the rows lie in the server's temporary files, and no snapshot is held.
absl::Status Drain::Open(const RowEncoder& encoder, const std::string& order,
                         const std::string& where, SqlConnection* connection) {
  const auto extra = [&](const char* column, std::uint32_t type, const char* expression) {
    return encoder.HasColumn(column, type) ? expression : "NULL";
  };
  return connection->Execute(absl::StrFormat(
      "DECLARE walpost_drain NO SCROLL CURSOR WITH HOLD FOR SELECT %s, %s, %s, %s, count(*) OVER "
      "() "
      "FROM %s AS t WHERE %s%s; COMMIT",
      encoder.Columns(), order.empty() ? "NULL" : "t." + QuoteIdentifier(order) + "::text",
      extra("tx", kXid8, "tx::text"),
      extra("created_at", kTimestamptz, "(extract(epoch FROM created_at) * 1000000)::bigint"),
      encoder.table(), where, order.empty() ? "" : " ORDER BY t." + QuoteIdentifier(order)));
}

absl::StatusOr<std::string> Drain::Run() {
  ASSIGN_OR_RETURN(connection_, SqlConnection::Connect(options_.source.conninfo,
                                                       options_.source.application_name));
  ASSIGN_OR_RETURN(const std::vector<Row> alone, connection_->Query(kOnlyOne));
  if (alone.at(0).at(0) != "t") {
    return absl::FailedPreconditionError("another `walpost init --drain-existing` is at it");
  }
  RETURN_IF_ERROR(ReadPlace());
  std::string text;
  for (std::uint32_t place = 0; place < options_.outboxes.size(); ++place) {
    ASSIGN_OR_RETURN(const std::string line, Table(place));
    text += line;
  }
  RETURN_IF_ERROR(connection_
                      ->Query("UPDATE walpost.pipeline SET drained = true, drain = NULL WHERE name "
                              "= $1",
                              {options_.name})
                      .status());
  return text;
}

absl::Status Drain::ReadPlace() {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection_->Query("SELECT p.snapshot, p.system_identifier::text, c.timeline_id::text FROM "
                         "walpost.pipeline p, pg_control_checkpoint() c WHERE p.name = $1",
                         {options_.name}));
  if (rows.empty() || !rows[0].at(0)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "walpost.pipeline does not tell the snapshot of pipeline '%s'", options_.name));
  }
  snapshot_ = *rows[0][0];
  position_.system_identifier = NumberOf<std::uint64_t>(rows[0].at(1));
  position_.timeline = NumberOf<std::uint32_t>(rows[0].at(2));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Drain::Table(std::uint32_t place) {
  const DlqOutbox& outbox = options_.outboxes[place];
  const std::string name = outbox.table.schema + "." + outbox.table.table;
  ASSIGN_OR_RETURN(Left left, ReadNote(name));
  if (left.done) {
    return absl::StrFormat("drain        %s was sent before\n", name);
  }
  ASSIGN_OR_RETURN(RowEncoder encoder, RowEncoder::Create(&*connection_, outbox, place, &schemas_));
  const std::string order = encoder.ColumnOf(outbox.table.columns.seq);
  if (!cursors_.contains(place)) {
    RETURN_IF_ERROR(OpenLater(place, encoder, order, left.seq));
  }
  sent_before_.reset();
  if (left.begun) {
    sent_before_.emplace(options_.kafka, kKind, left.at_ms - kClockMarginMs, kScanTimeout);
  } else {
    left.begun = true;
    left.at_ms = NowMs();
    RETURN_IF_ERROR(Note(name, left));
  }
  sent_ = 0;
  found_ = 0;
  RETURN_IF_ERROR(base::Annotate(SendAll(name, place, &encoder, !order.empty()), name));
  left.done = true;
  RETURN_IF_ERROR(Note(name, left));
  return absl::StrFormat("drain        %s: %d events sent%s\n", name, sent_,
                         found_ > 0 ? absl::StrFormat(", %d had been sent before", found_) : "");
}

// Rows that tell their transaction: any time after the slot was made.
absl::Status Drain::OpenLater(std::uint32_t place, const RowEncoder& encoder,
                              const std::string& order, const std::string& after) {
  const outbox::TableOptions& table = options_.outboxes[place].table;
  if (!TellsItsTransaction(encoder)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the drain of %s.%s was interrupted, and without a column tx of type xid8 its rows cannot "
        "be told from later ones: `walpost slot drop --yes`, DELETE FROM walpost.pipeline WHERE "
        "name = %s, and run this again; what was sent is sent once more, with the same ids",
        table.schema, table.table, QuoteLiteral(options_.name)));
  }
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(options_.source.conninfo, options_.source.application_name));
  std::string where = absl::StrFormat("pg_visible_in_snapshot(tx, %s)", QuoteLiteral(snapshot_));
  if (!after.empty()) {
    where += absl::StrFormat(" AND %s > %s", QuoteIdentifier(order), QuoteLiteral(after));
  }
  RETURN_IF_ERROR(connection.Execute("BEGIN READ ONLY"));
  RETURN_IF_ERROR(Open(encoder, order, where, &connection));
  cursors_.emplace(place, std::move(connection));
  return absl::OkStatus();
}

absl::Status Drain::SendAll(const std::string& table, std::uint32_t place, RowEncoder* encoder,
                            bool has_order) {
  writer_.emplace(options_.kafka, options_.patience);
  std::uint64_t rows = 0;
  std::uint64_t all = 0;
  const auto on_row = [&](const Row& row) {
    RETURN_IF_ERROR(Send(row, encoder, has_order));
    all = NumberOf<std::uint64_t>(row.at(encoder->width() + kCount));
    if (++rows % options_.note_every != 0) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(writer_->Flush());
    if (options_.on_progress) {
      options_.on_progress(table, rows, all);
    }
    const Cell& seq = row[encoder->width() + kSeq];
    return TellsItsTransaction(*encoder) && seq
               ? Note(table, Left{/*begun=*/true, /*done=*/false, *seq, NowMs()})
               : absl::OkStatus();
  };
  RETURN_IF_ERROR(cursors_.at(place).ForEachRow("FETCH ALL FROM walpost_drain", on_row));
  RETURN_IF_ERROR(writer_->Flush());
  if (options_.on_progress) {
    options_.on_progress(table, rows, rows);
  }
  cursors_.erase(place);
  return absl::OkStatus();
}

absl::Status Drain::Send(const Row& row, RowEncoder* encoder, bool has_order) {
  const std::size_t extra = encoder->width();
  envelope::Position position = position_;
  // Before everything that is streamed, and in the order of the rows.
  position.ordinal =
      has_order ? static_cast<std::uint32_t>(NumberOf<std::uint64_t>(row.at(extra + kSeq))) : 0;
  envelope::TransactionInfo transaction;
  transaction.xid.value =
      static_cast<std::uint32_t>(NumberOf<std::uint64_t>(row.at(extra + kTransaction)));
  const Cell& created = row.at(extra + kCreated);
  transaction.commit_time =
      base::WallTime(created ? std::chrono::microseconds(NumberOf<std::int64_t>(created))
                             : std::chrono::microseconds(NowMs() * 1'000));
  ASSIGN_OR_RETURN(envelope::Record record, encoder->Encode(row, position, transaction));
  if (sent_before_) {
    ASSIGN_OR_RETURN(const bool sent,
                     sent_before_->Contains(record.topic, record.headers.front().value));
    if (sent) {
      ++found_;
      return absl::OkStatus();
    }
  }
  ASSIGN_OR_RETURN(record, framer_.Frame(record, schemas_));
  const std::vector<envelope::RecordHeader> headers =
      envelope::RedeliveryHeaders(record.headers, kKind, "");
  record.headers = headers;
  RETURN_IF_ERROR(writer_->Write(record));
  ++sent_;
  return absl::OkStatus();
}

absl::StatusOr<Drain::Left> Drain::ReadNote(const std::string& table) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection_->Query("SELECT drain #>> ARRAY[$2, 'state'], drain #>> ARRAY[$2, 'seq'], drain "
                         "#>> ARRAY[$2, 'at_ms'] FROM walpost.pipeline WHERE name = $1",
                         {options_.name, table}));
  Left left;
  if (!rows.empty() && rows[0].at(0)) {
    left.begun = true;
    left.done = rows[0][0] == "done";
    left.seq = rows[0].at(1).value_or("");
    left.at_ms = NumberOf<std::int64_t>(rows[0].at(2));
  }
  return left;
}

absl::Status Drain::Note(const std::string& table, const Left& left) {
  nlohmann::json note{{"state", left.done ? "done" : "sending"}, {"at_ms", left.at_ms}};
  if (!left.seq.empty()) {
    note["seq"] = left.seq;
  }
  return connection_
      ->Query(
          "UPDATE walpost.pipeline SET drain = coalesce(drain, '{}') || "
          "jsonb_build_object($2::text, "
          "$3::jsonb) WHERE name = $1",
          {options_.name, table, note.dump()})
      .status();
}

}  // namespace walpost::operations
