#include "postgres/dead_letters.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "postgres/dead_letter_cells.h"

namespace walpost::postgres {
namespace {

using base::DeadLetter;

constexpr std::size_t kRowsAtATime = 100;
constexpr std::size_t kKeysAtATime = 1'000;
constexpr std::size_t kHexadecimal = 2;  // characters for a byte

// What a row holds, in SQL.
constexpr const char* kBytesWithoutRecord =
    "512 + coalesce(octet_length(key), 0) + octet_length(value_schema)";
constexpr const char* kRecordBytes =
    " + coalesce(octet_length(value), 0) + coalesce((SELECT sum(octet_length(n) + "
    "coalesce(octet_length(v), 0)) FROM unnest(header_names, header_values) AS h (n, v)), 0)";

// The rows of `which`, as many as are about kReadBytesMax: first a running sum of what they hold,
// without the record where it is not read. The headers may be the most of it. What is sorted has no
// record.
std::string UnorderedPiece(const std::string& which, std::size_t limit, bool whole,
                           const std::string& order) {
  return absl::StrFormat(
      "WHERE seq IN (SELECT seq FROM (SELECT seq, sum(bytes) OVER (ORDER BY n) - bytes AS before "
      "FROM (SELECT seq, n, %s%s AS bytes FROM (SELECT seq, row_number() OVER (ORDER BY %s) AS n "
      "FROM walpost.dead_letters WHERE %s ORDER BY %s LIMIT %u) AS first JOIN walpost.dead_letters "
      "USING (seq)) AS sized) AS next WHERE before < %u)",
      kBytesWithoutRecord, whole ? kRecordBytes : "", order, which, order, limit,
      DeadLetterTable::kReadBytesMax);
}

std::string Piece(const std::string& which, std::size_t limit, bool whole,
                  const std::string& order = "seq") {
  return absl::StrFormat("%s ORDER BY %s", UnorderedPiece(which, limit, whole, order), order);
}

// `here`: identifier, database and, of a primary, timeline in hexadecimal.
absl::Status CheckSource(const Row& here, const DeadLetterTable::Source& source,
                         const std::string& host) {
  // bigint, so half of all identifiers may show as negative.
  std::int64_t identifier = 0;
  if (source.system_identifier != 0 && absl::SimpleAtoi(here.at(0).value_or(""), &identifier) &&
      static_cast<std::uint64_t>(identifier) != source.system_identifier) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is of another cluster than the one that is streamed from: its walpost.dead_letters are "
        "not this pipeline's; see delivery.dead_letter_conninfo",
        host));
  }
  if (const std::string there = here.at(1).value_or("");
      !source.database.empty() && there != source.database) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "database \"%s\" on %s is another one than \"%s\", which is streamed from: outbox.maintain "
        "would drop rows that these dead letters need; see delivery.dead_letter_conninfo",
        there, host, source.database));
  }
  std::uint32_t timeline = 0;
  if (here.at(2) && absl::SimpleHexAtoi(*here.at(2), &timeline) && timeline < source.timeline) {
    return absl::UnavailableError(absl::StrFormat(
        "%s is a primary on timeline %u, and timeline %u is streamed: it was replaced, and its "
        "walpost.dead_letters are those of before",
        host, timeline, source.timeline));
  }
  return absl::OkStatus();
}

}  // namespace

std::chrono::seconds StatementTimeFor(std::size_t bytes) {
  constexpr std::chrono::seconds kAtLeast{10};
  constexpr std::chrono::seconds kPerMebibyte{10};
  constexpr std::chrono::seconds kAtMost{7'200};
  const auto mebibytes = static_cast<std::int64_t>(bytes >> 20U);
  return mebibytes > kAtMost / kPerMebibyte
             ? kAtMost
             : std::min(kAtLeast + kPerMebibyte * mebibytes, kAtMost);
}

absl::StatusOr<DeadLetterTable> DeadLetterTable::Open(const std::string& conninfo,
                                                      const std::string& application_name,
                                                      std::string pipeline, const Source& source,
                                                      const std::optional<ServerAddress>& server) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(conninfo, application_name, server));
  RETURN_IF_ERROR(connection.Execute("SET lock_timeout = '5s'"));
  // A view would run with our rights.
  ASSIGN_OR_RETURN(
      const std::vector<Row> no_tables,
      connection.Query(
          "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = "
          "c.relnamespace WHERE n.nspname = 'walpost' AND c.relname IN "
          "('dead_letters', 'dead_letter_count') AND c.relkind <> 'r'"));
  if (!no_tables.empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s on %s is no table, so walpost did not make it",
                        no_tables[0].at(0).value_or(""), connection.host()));
  }
  auto rows = connection.Query(
      "SELECT system_identifier::text, current_database(), CASE WHEN NOT pg_is_in_recovery() THEN "
      "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END, (SELECT count(*) FROM "
      "walpost.dead_letters WHERE false) FROM pg_control_system()");
  if (!rows.ok()) {
    return NotUsable(rows.status(), connection);
  }
  RETURN_IF_ERROR(CheckSource(rows->at(0), source, connection.host()));
  return DeadLetterTable(std::move(connection), std::move(pipeline));
}

absl::Status DeadLetterTable::LimitStatements() {
  statement_for_ = std::chrono::seconds(0);
  return AllowFor(0);
}

absl::Status DeadLetterTable::AllowFor(std::size_t bytes) {
  const std::chrono::seconds wanted = StatementTimeFor(bytes);
  if (!statement_for_ || *statement_for_ == wanted) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(
      connection_.Execute(absl::StrFormat("SET statement_timeout = '%ds'", wanted.count())));
  statement_for_ = wanted;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Row>> DeadLetterTable::Query(const std::string& sql,
                                                        const std::vector<Cell>& parameters,
                                                        std::size_t bytes_back) {
  std::size_t bytes = sql.size() + bytes_back;
  for (const Cell& parameter : parameters) {
    bytes += parameter ? parameter->size() : 0;
  }
  RETURN_IF_ERROR(AllowFor(bytes));
  absl::StatusOr<std::vector<Row>> rows = connection_.Query(sql, parameters);
  if (rows.ok()) {  // else who asked looks at the SQLSTATE, and the connection has an end
    RETURN_IF_ERROR(AllowFor(0));
  }
  return rows;
}

absl::StatusOr<DeadLetterTable::Written> DeadLetterTable::CountWritten() {
  absl::StatusOr<std::vector<Row>> rows = Query(
      "SELECT (SELECT written FROM walpost.dead_letter_count WHERE pipeline = $1), "
      "pg_is_in_recovery()",
      {pipeline_});
  if (!rows.ok()) {
    return NotUsable(rows.status(), connection_);
  }
  return Written{ToNumber<std::uint64_t>(rows->at(0).at(0)), rows->at(0).at(1) == "t"};
}

absl::StatusOr<std::vector<base::ParkedKey>> DeadLetterTable::ReadParked(std::int64_t after) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      Query(absl::StrFormat(
                "SELECT seq, %s, topic, encode(key, 'hex') FROM walpost.dead_letters WHERE seq "
                "IN (SELECT seq FROM (SELECT seq, sum(512 + octet_length(key)) OVER "
                "(ORDER BY seq) - octet_length(key) AS before FROM walpost.dead_letters "
                "WHERE %s%sAND parked AND seq > $2::bigint ORDER BY seq LIMIT %u) AS next "
                "WHERE before <= %u) ORDER BY seq",
                kPlace, kOurs, kOpen, kKeysAtATime, kReadBytesMax),
            {pipeline_, std::to_string(after)}));
  std::vector<base::ParkedKey> keys;
  for (const Row& row : rows) {
    keys.push_back({ToNumber<std::int64_t>(row.at(0)), row.at(1).value_or(""),
                    row.at(2).value_or(""), Unhex(row.at(3)).value_or("")});
  }
  return keys;
}

absl::StatusOr<std::vector<DeadLetter>> DeadLetterTable::ReadRowsFrom(base::Lsn from,
                                                                      std::int64_t after) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> found,
      Query(absl::StrFormat(
                "SELECT seq, position, left(event_id, %u) FROM walpost.dead_letters "
                "WHERE %s AND %s AND NOT (parked AND %s) AND (%s, seq) > ($2, $3::bigint) ORDER "
                "BY %s, seq LIMIT %u",
                DeadLetter::kTextBytesMax, kOurs, kStreamed, kSent, kCommitLsn, kCommitLsn,
                kKeysAtATime),
            {pipeline_, CommitLsnText(from), std::to_string(after)}));
  std::vector<DeadLetter> rows;
  for (const Row& row : found) {
    DeadLetter& read = rows.emplace_back();
    read.seq = ToNumber<std::int64_t>(row.at(0));
    read.position = row.at(1).value_or("");
    read.event_id = row.at(2).value_or("");
  }
  return rows;
}

absl::StatusOr<std::vector<DeadLetter>> DeadLetterTable::ReadSent(const std::string& after,
                                                                  std::size_t limit) {
  const std::string order = absl::StrFormat("%s, position COLLATE \"C\"", kCommitLsn);
  return Select(
      Piece(absl::StrFormat("%s AND parked AND %s AND left(position, 16) = left($2, 16) AND (%s) > "
                            "(substr($2, 27, 16) COLLATE \"C\", $2 COLLATE \"C\")",
                            kOurs, kSent, order),
            limit, /*whole=*/true, order),
      {pipeline_, after}, /*whole=*/true);
}

absl::StatusOr<std::size_t> DeadLetterTable::DeleteSentBefore(base::Lsn lsn) {
  constexpr std::size_t kRowsAtATime = 1'000;
  ASSIGN_OR_RETURN(
      const std::vector<Row> gone,
      Query(absl::StrFormat("DELETE FROM walpost.dead_letters %s RETURNING 1",
                            UnorderedPiece(absl::StrFormat("%s AND %s AND %s AND %s < $2", kOurs,
                                                           kSent, kOfThisLog, kCommitLsn),
                                           kRowsAtATime, /*whole=*/true, kCommitLsn)),
            {pipeline_, CommitLsnText(lsn)}));
  return gone.size();
}

absl::StatusOr<std::uint64_t> DeadLetterTable::CountOpen() {
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   Query(absl::StrFormat("SELECT count(*) FROM walpost.dead_letters "
                                         "WHERE %s%s",
                                         kOurs, kOpen),
                         {pipeline_}));
  return ToNumber<std::uint64_t>(rows.at(0).at(0));
}

absl::StatusOr<std::uint64_t> DeadLetterTable::CountForeign() {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      Query("SELECT count(*) FROM walpost.dead_letters WHERE pipeline = $1 AND "
            "closed_at IS NULL AND system_identifier <> (SELECT system_identifier FROM "
            "pg_control_system())",
            {pipeline_}));
  return ToNumber<std::uint64_t>(rows.at(0).at(0));
}

absl::StatusOr<std::vector<DeadLetter>> DeadLetterTable::Select(const std::string& rest,
                                                                const std::vector<Cell>& parameters,
                                                                bool whole) {
  std::size_t bytes = 0;
  if (whole && statement_for_) {
    ASSIGN_OR_RETURN(const std::vector<Row> sized,
                     Query(absl::StrFormat("SELECT coalesce(sum(bytes), 0) FROM (SELECT %s%s AS "
                                           "bytes FROM walpost.dead_letters %s) AS sized",
                                           kBytesWithoutRecord, kRecordBytes, rest),
                           parameters));
    bytes = kHexadecimal * ToNumber<std::size_t>(sized.at(0).at(0));
  }
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   Query(absl::StrFormat("SELECT %s%s%s FROM walpost.dead_letters %s", kColumns,
                                         kPlace, whole ? kRecordColumns : "", rest),
                         parameters, bytes));
  std::vector<DeadLetter> found;
  found.reserve(rows.size());
  for (const Row& row : rows) {
    found.push_back(DeadLetterOf(row, whole));
  }
  return found;
}

absl::StatusOr<DeadLetterTable::Decided> DeadLetterTable::NextDecision(
    const std::string& streamed_to, bool retries_only) {
  const std::string decided = absl::StrFormat("%s%sAND decision IS NOT NULL", kOurs, kOpen);
  const std::string waits = absl::StrFormat("parked AND decision = 'retry' AND %s >= $2", kPlace);
  // By one sort: as many keys as rows may be decided.
  const std::string of_these =
      retries_only ? absl::StrFormat(
                         "seq IN (SELECT seq FROM (SELECT seq, decision, bool_or(decision = "
                         "'discard') OVER (PARTITION BY CASE WHEN NOT parked THEN seq END, topic, "
                         "key) AS held FROM walpost.dead_letters WHERE %s) AS each WHERE NOT held)",
                         decided)
                   : "true";
  const std::vector<Cell> parameters{pipeline_, streamed_to};
  // A key may be large: it is read of the row that is found alone.
  ASSIGN_OR_RETURN(
      std::vector<DeadLetter> rows,
      Select(absl::StrFormat("WHERE seq = (SELECT seq FROM walpost.dead_letters WHERE "
                             "%s AND NOT (%s) AND %s ORDER BY decided_at, seq LIMIT 1)",
                             decided, waits, of_these),
             parameters, /*whole=*/false));
  if (!rows.empty()) {
    return Decided{std::move(rows.front()), ""};
  }
  ASSIGN_OR_RETURN(const std::vector<Row> first,
                   Query(absl::StrFormat("SELECT min(%s) FROM walpost.dead_letters WHERE %s AND %s",
                                         kPlace, decided, waits),
                         parameters));
  return Decided{std::nullopt, first.at(0).at(0).value_or("")};
}

absl::StatusOr<std::optional<DeadLetter>> DeadLetterTable::NextDiscardBeside(
    std::int64_t seq, const std::string& topic, const std::optional<std::string>& key) {
  ASSIGN_OR_RETURN(
      std::vector<DeadLetter> rows,
      Select(absl::StrFormat("WHERE seq = (SELECT seq FROM walpost.dead_letters WHERE %s%sAND "
                             "decision = 'discard' AND seq <> $2::bigint AND (NOT parked OR topic "
                             "<> $3 OR key <> $4::bytea OR $4 IS NULL) ORDER BY decided_at, seq "
                             "LIMIT 1)",
                             kOurs, kOpen),
             {pipeline_, std::to_string(seq), topic, Bytea(key)}, /*whole=*/false));
  return rows.empty() ? std::nullopt : std::optional(std::move(rows.front()));
}

absl::StatusOr<std::vector<DeadLetter>> DeadLetterTable::ReadKey(const std::string& topic,
                                                                 const std::string& key,
                                                                 const std::string& place,
                                                                 std::size_t limit) {
  return Select(Piece(absl::StrFormat("%s%s%s AND %s < $4", kOurs, kOpen, kOfKey, kPlace), limit,
                      /*whole=*/true, absl::StrFormat("%s, %s, seq", kPlace, kStoredPlace)),
                {pipeline_, topic, Hex(key), place}, /*whole=*/true);
}

absl::StatusOr<std::vector<DeadLetter>> DeadLetterTable::ReadRow(std::int64_t seq, bool whole) {
  return Select(absl::StrFormat("WHERE %s%sAND seq = $2::bigint", kOurs, kOpen),
                {pipeline_, std::to_string(seq)}, whole);
}

absl::StatusOr<bool> DeadLetterTable::KeyIsOpen(const std::string& topic, const std::string& key) {
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   Query(absl::StrFormat("SELECT EXISTS (SELECT FROM "
                                         "walpost.dead_letters WHERE %s%s%s)",
                                         kOurs, kOpen, kOfKey),
                         {pipeline_, topic, Hex(key)}));
  return rows.at(0).at(0) == "t";
}

absl::Status DeadLetterTable::ForEach(const std::string& where, const std::vector<Cell>& parameters,
                                      bool whole, const OnRow& on_row) {
  std::int64_t after = 0;
  for (;;) {
    std::vector<Cell> all{pipeline_};
    all.insert(all.end(), parameters.begin(), parameters.end());
    // One at a time where they may be large.
    const std::size_t limit = whole ? 1 : kRowsAtATime;
    const std::string which = absl::StrFormat("pipeline = $1 AND seq > %d AND (%s)", after, where);
    ASSIGN_OR_RETURN(const std::vector<DeadLetter> rows,
                     Select(Piece(which, limit, whole), all, whole));
    if (rows.empty()) {
      return absl::OkStatus();
    }
    for (const DeadLetter& row : rows) {
      RETURN_IF_ERROR(on_row(row));
      after = row.seq;
    }
  }
}

}  // namespace walpost::postgres
