#include "operations/rows/row_reader.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/deadletters/dlq.h"

namespace walpost::operations {
namespace {

using postgres::Cell;
using postgres::NumberOf;
using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SqlConnection;

constexpr std::uint32_t kTimestamptz = 1184;
constexpr std::uint32_t kTexts[] = {25, 1042, 1043};  // text, char, varchar
// What is selected behind the table's own columns.
constexpr std::size_t kSeq = 0;
constexpr std::size_t kTransaction = 1;
constexpr std::size_t kCreated = 2;
constexpr std::size_t kId = 3;

// Whoever inserts may write any time. One that no row can have been made at counts as none: infinity and
// years that fit into no number, and what is yet to come, behind which no record would be looked for.
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
                                            const std::string& publication,
                                            const envelope::OutboxOptions& outbox,
                                            std::uint32_t source, envelope::SchemaTable* schemas,
                                            const std::string& snapshot) {
  ASSIGN_OR_RETURN(RowEncoder encoder,
                   RowEncoder::Create(&connection, publication, outbox, source, schemas, snapshot));
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

}  // namespace walpost::operations
