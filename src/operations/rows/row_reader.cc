#include "operations/rows/row_reader.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "operations/deadletters/dlq.h"
#include "operations/setup/pipeline_record.h"
#include "postgres/slots.h"

namespace walpost::operations {
namespace {

using base::Lsn;
using postgres::Row;
using postgres::SqlConnection;
using std::chrono::steady_clock;

constexpr int kStepMs = 100;
// A position "behind" the last record of a page lies behind the next page's header, which nothing
// is confirmed up to before there is a record. No record ends within a header.
constexpr std::uint64_t kPageBytes = 8192;
constexpr std::uint64_t kHeaderBytesMax = 40;

absl::Status NotConfirmed(const postgres::SlotInfo& slot, Lsn position) {
  return absl::DeadlineExceededError(
      absl::StrFormat("slot %s is confirmed up to %s and not up to %s, where the rows were read%s",
                      slot.name, slot.confirmed_flush_lsn.ToString(), position.ToString(),
                      slot.active ? ": walpost is behind (`walpost slot list`); try again later"
                                  : ": nobody streams it; start `walpost run`, then try again"));
}

absl::Status NotReplayed(Lsn replayed, Lsn position) {
  return absl::AbortedError(absl::StrFormat(
      "the standby has replayed the log up to %s, which is %d bytes behind %s, where the source "
      "is: "
      "rows may be missing there; see whether its replay is paused or stuck "
      "(pg_is_wal_replay_paused(), pg_stat_wal_receiver), and try again later or with a longer "
      "--wait",
      replayed.ToString(), position.value() - replayed.value(), position.ToString()));
}

}  // namespace

absl::StatusOr<Lsn> EndOfSnapshot(SqlConnection* connection) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query("SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE "
                        "pg_current_wal_insert_lsn() END::text"));
  ASSIGN_OR_RETURN(const Lsn end, Lsn::Parse(rows.at(0).at(0).value_or("")));
  const std::uint64_t in_page = end.value() % kPageBytes;
  return in_page <= kHeaderBytesMax ? Lsn(end.value() - in_page) : end;
}

absl::Status AwaitConfirmed(const postgres::ConnectOptions& source, Lsn position,
                            std::chrono::milliseconds patience) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(source.conninfo, source.application_name));
  const auto deadline = steady_clock::now() + patience;
  while (true) {
    ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(&connection, source.slot));
    if (!slot) {
      return absl::NotFoundError(
          absl::StrFormat("slot %s does not exist, so nothing shows what is in Kafka: see "
                          "docs/runbook.md, slot_missing",
                          source.slot));
    }
    if (slot->confirmed_flush_lsn >= position) {
      return absl::OkStatus();
    }
    if (steady_clock::now() >= deadline) {
      return NotConfirmed(*slot, position);
    }
    poll(nullptr, 0, kStepMs);
  }
}

absl::Status AwaitReplayed(SqlConnection* standby, const postgres::ConnectOptions& source,
                           std::chrono::milliseconds patience) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(source.conninfo, source.application_name));
  ASSIGN_OR_RETURN(const Lsn position, EndOfSnapshot(&connection));
  const auto deadline = steady_clock::now() + patience;
  while (true) {
    ASSIGN_OR_RETURN(const Lsn replayed, EndOfSnapshot(standby));
    if (replayed >= position) {
      return absl::OkStatus();
    }
    if (steady_clock::now() >= deadline) {
      return NotReplayed(replayed, position);
    }
    poll(nullptr, 0, kStepMs);
  }
}

namespace {

using postgres::Cell;
using postgres::NumberOf;
using postgres::QuoteIdentifier;

constexpr std::uint32_t kTimestamptz = 1184;
constexpr std::uint32_t kTexts[] = {25, 1042, 1043};  // text, char, varchar
// What is selected behind the table's own columns.
constexpr std::size_t kSeq = 0;
constexpr std::size_t kTransaction = 1;
constexpr std::size_t kCreated = 2;
constexpr std::size_t kId = 3;

// Whoever inserts may write any time. One that no row can have been made at counts as none:
// infinity and years that fit into no number, and what is yet to come, behind which no record would
// be looked for.
std::string MayBeTrue(const std::string& time) {
  return absl::StrFormat("%s >= '0001-01-01 00:00:00+00' AND %s < now() + interval '1 day'", time,
                         time);
}

}  // namespace

RowReader::RowReader(SqlConnection connection, RowEncoder encoder,
                     const outbox::TableOptions& table)
    : connection_(std::move(connection)),
      encoder_(std::move(encoder)),
      id_(encoder_.ColumnOf(table.columns.id)),
      order_(encoder_.ColumnOf(table.columns.seq)) {}

absl::StatusOr<RowReader> RowReader::Create(SqlConnection connection,
                                            const PipelineSettings& pipeline, std::uint32_t source,
                                            envelope::SchemaTable* schemas,
                                            const std::string& snapshot) {
  const envelope::OutboxOptions& outbox = pipeline.outboxes[source];
  ASSIGN_OR_RETURN(RowEncoder encoder, RowEncoder::Create(&connection, pipeline.source.publication,
                                                          outbox, source, schemas, snapshot));
  return RowReader(std::move(connection), std::move(encoder), outbox.table);
}

bool RowReader::HasTransactionIds() const {
  return encoder_.HasColumn(kTransactionColumn, kTransactionType);
}

bool RowReader::HasTimes() const { return encoder_.HasColumn("created_at", kTimestamptz); }

bool RowReader::IdsMayRepeat() const {
  return !id_.empty() && !encoder_.HasColumn(id_, kUuidType) &&
         std::none_of(std::begin(kTexts), std::end(kTexts),
                      [&](std::uint32_t type) { return encoder_.HasColumn(id_, type); });
}

std::string RowReader::Column(const outbox::ColumnNames& names) const {
  const std::string column = encoder_.ColumnOf(names);
  return column.empty() ? "" : "t." + QuoteIdentifier(column);
}

std::string RowReader::OrderColumn() const { return "t." + QuoteIdentifier(order_); }

absl::Status RowReader::ReadOrigin() {
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   connection_.Query("SELECT s.system_identifier::text, c.timeline_id::text FROM "
                                     "pg_control_system() s, pg_control_checkpoint() c"));
  origin_.system_identifier = NumberOf<std::uint64_t>(rows.at(0).at(0));
  origin_.timeline = NumberOf<std::uint32_t>(rows.at(0).at(1));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::int64_t>> RowReader::BeginsMs() {
  std::optional<std::int64_t> begins_ms;
  if (!HasTimes()) {
    return begins_ms;
  }
  // Of a default partition there is no begin, and so of a table that has rows in nothing else.
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection_.Query(absl::StrFormat(
          "WITH bounds AS (SELECT greatest(bound[1]::timestamptz, '0001-01-01 00:00:00+00') AS "
          "begin FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid CROSS JOIN "
          "regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''([^'']+)''\\) TO') AS "
          "bound WHERE i.inhparent = to_regclass(%s) AND bound IS NOT NULL) SELECT "
          "floor(extract(epoch FROM "
          "coalesce((SELECT min(begin) FROM bounds WHERE %s), (SELECT min(t.created_at) FROM %s AS "
          "t WHERE %s))) * 1000)::bigint",
          postgres::QuoteLiteral(encoder_.table()), MayBeTrue("begin"), encoder_.table(),
          MayBeTrue("t.created_at"))));
  if (rows.at(0).at(0)) {
    begins_ms = NumberOf<std::int64_t>(rows[0][0]);
  }
  return begins_ms;
}

absl::StatusOr<bool> RowReader::TransactionsAreOurs() {
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   connection_.Query(absl::StrFormat(
                       "SELECT NOT EXISTS (SELECT FROM %s AS t WHERE t.tx IS NULL OR t.tx >= "
                       "pg_snapshot_xmax(pg_current_snapshot()) OR age(t.xmin) > age(t.tx::xid))",
                       encoder_.table())));
  return rows.at(0).at(0) == "t";
}

absl::StatusOr<bool> RowReader::HasAny(const std::string& where) {
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   connection_.Query(absl::StrFormat("SELECT EXISTS (SELECT FROM %s AS t WHERE %s)",
                                                     encoder_.table(), where)));
  return rows.at(0).at(0) == "t";
}

absl::Status RowReader::Open(const std::string& where, Reading reading) {
  RETURN_IF_ERROR(ReadOrigin());
  const std::string from = absl::StrFormat("FROM %s AS t WHERE %s", encoder_.table(), where);
  ASSIGN_OR_RETURN(const std::vector<Row> count, connection_.Query("SELECT count(*) " + from));
  count_ = NumberOf<std::uint64_t>(count.at(0).at(0));
  const auto text = [](bool known, const std::string& expression) {
    return known ? expression : "NULL";
  };
  // As output functions write it: a cast of a type may be anybody's function.
  const std::string select = absl::StrFormat(
      "SELECT %s, %s, %s, %s, %s %s", encoder_.Columns(), text(HasOrder(), OrderColumn()),
      text(HasTransactionIds(), "t.tx::text"),
      text(HasTimes(),
           absl::StrFormat(
               "CASE WHEN %s THEN (extract(epoch FROM t.created_at) * 1000000)::bigint END",
               MayBeTrue("t.created_at"))),
      text(!id_.empty(), "t." + QuoteIdentifier(id_)), from);
  if (reading == Reading::kAsTheyLie) {
    fetch_ = select;
    return absl::OkStatus();
  }
  in_order_ = HasOrder();
  fetch_ = "FETCH ALL FROM walpost_rows";
  return connection_.Execute(
      absl::StrFormat("DECLARE walpost_rows %s CURSOR WITH HOLD FOR %s%s; COMMIT",
                      reading == Reading::kTwice ? "SCROLL" : "NO SCROLL", select,
                      HasOrder() ? " ORDER BY " + OrderColumn() : ""));
}

absl::Status RowReader::ForEach(const OnRow& on_row) {
  if (begun_) {
    RETURN_IF_ERROR(connection_.Execute("MOVE BACKWARD ALL FROM walpost_rows"));
  }
  begun_ = true;
  last_seq_.reset();
  std::uint64_t number = 0;
  return connection_.ForEachRow(fetch_,
                                [&](const Row& row) { return Take(row, number++, on_row); });
}

absl::Status RowReader::Take(const Row& row, std::uint64_t number, const OnRow& on_row) {
  const std::size_t extra = encoder_.width();
  envelope::Position position = origin_;
  // Before everything that is streamed, and in the order of the rows.
  position.ordinal = static_cast<std::uint32_t>(NumberOf<std::uint64_t>(row.at(extra + kSeq)));
  envelope::TransactionInfo transaction;
  transaction.xid.value =
      static_cast<std::uint32_t>(NumberOf<std::uint64_t>(row.at(extra + kTransaction)));
  const Cell& created = row.at(extra + kCreated);
  const auto created_at = std::chrono::microseconds(NumberOf<std::int64_t>(created));
  transaction.commit_time = created ? base::WallTime(created_at) : WallNow();
  absl::StatusOr<envelope::Record> record =
      encoder_.Encode(encoder_.ValuesOf(row), position, transaction);
  const Cell& seq = row.at(extra + kSeq);
  if (seq != last_seq_) {
    last_seq_ = seq;
    last_order_ = number;
  }
  const Cell& id = row.at(extra + kId);
  const std::string id_text = id.value_or("");
  std::optional<std::int64_t> created_ms;
  if (created) {
    created_ms = std::chrono::floor<std::chrono::milliseconds>(created_at).count();
  }
  const auto order = in_order_ && seq ? std::optional(last_order_) : std::nullopt;
  return on_row(
      ReadRow{number, seq, order, id_text, encoder_.topic(), encoder_.key(), created_ms, record});
}

namespace {

using postgres::QuoteLiteral;

std::string TimeSql(std::int64_t milliseconds) {
  return absl::StrFormat("to_timestamp(%d.%03d)", milliseconds / 1000, milliseconds % 1000);
}

}  // namespace

std::string NameOf(const envelope::OutboxOptions& outbox) {
  return outbox.table.schema + "." + outbox.table.table;
}

absl::StatusOr<std::string> RowFilter::Where(const RowReader& reader,
                                             const outbox::TableOptions& options) const {
  std::string where = "true";
  const auto column = [&](const outbox::ColumnNames& names, const char* option,
                          std::string* name) -> absl::Status {
    *name = reader.Column(names);
    return name->empty() ? absl::InvalidArgumentError(
                               absl::StrFormat("table %s.%s has no column that %s could be about",
                                               options.schema, options.table, option))
                         : absl::OkStatus();
  };
  if ((from_ms || to_ms) && !reader.HasTimes()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "table %s.%s has no column created_at of type timestamptz, which --from and --to are about",
        options.schema, options.table));
  }
  if (from_ms) {
    where += " AND t.created_at >= " + TimeSql(*from_ms);
  }
  if (to_ms) {
    where += " AND t.created_at < " + TimeSql(*to_ms);
  }
  std::string name;
  if (!ids.empty()) {
    RETURN_IF_ERROR(column(options.columns.id, "--id", &name));
    std::vector<std::string> quoted;
    for (const std::string& id : ids) {
      quoted.push_back(QuoteLiteral(id));
    }
    where += absl::StrFormat(" AND %s IN (%s)", name, absl::StrJoin(quoted, ", "));
  }
  if (!key.empty()) {
    RETURN_IF_ERROR(column(options.columns.key, "--key", &name));
    where += absl::StrFormat(" AND %s = %s", name, QuoteLiteral(key));
  }
  if (!type.empty()) {
    RETURN_IF_ERROR(column(options.columns.type, "--type", &name));
    where += absl::StrFormat(" AND %s = %s", name, QuoteLiteral(type));
  }
  return where;
}

absl::StatusOr<std::vector<std::uint32_t>> TablesOf(
    const RowFilter& filter, const std::vector<envelope::OutboxOptions>& outboxes) {
  std::vector<std::uint32_t> sources;
  std::vector<std::string> names;
  for (std::uint32_t source = 0; source < outboxes.size(); ++source) {
    names.push_back(NameOf(outboxes[source]));
    if (filter.table.empty() || filter.table == names.back()) {
      sources.push_back(source);
    }
  }
  if (sources.empty()) {
    return absl::InvalidArgumentError(
        names.empty()
            ? "no outbox table is configured, and messages stand in none"
            : absl::StrFormat("--table %s is not among the configured outboxes, which are %s",
                              filter.table, absl::StrJoin(names, ", ")));
  }
  return sources;
}

absl::StatusOr<RowReader> BeginReading(const RowsElsewhere& standby,
                                       const PipelineSettings& pipeline, std::uint32_t source,
                                       envelope::SchemaTable* schemas, base::Lsn* end) {
  const postgres::ConnectOptions& server = pipeline.source;
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(standby.conninfo.empty() ? server.conninfo : standby.conninfo,
                             server.application_name));
  if (!server.pipeline.empty()) {
    RETURN_IF_ERROR(CheckRecordFits(&connection, server.pipeline, server.slot));
  }
  if (!standby.conninfo.empty()) {
    RETURN_IF_ERROR(AwaitReplayed(&connection, server, standby.wait));
  }
  ASSIGN_OR_RETURN(RowReader reader,
                   RowReader::Create(std::move(connection), pipeline, source, schemas));
  ASSIGN_OR_RETURN(*end, EndOfSnapshot(reader.connection()));
  return reader;
}

}  // namespace walpost::operations
