#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "postgres/dead_letter_cells.h"
#include "postgres/dead_letters.h"

namespace walpost::postgres {

using base::DeadLetter;

namespace {

std::string Numbers(const std::vector<std::int64_t>& rows) {
  return "{" + absl::StrJoin(rows, ",") + "}";
}

}  // namespace

absl::StatusOr<bool> DeadLetterTable::Delivered(std::int64_t seq, bool keep) {
  // Whatever was decided while its record was on its way. A discard may have closed it.
  const std::vector<Cell> parameters{pipeline_, std::to_string(seq)};
  const std::string gone =
      absl::StrFormat("DELETE FROM walpost.dead_letters WHERE %sAND seq = $2::bigint ", kOurs);
  if (!keep) {
    ASSIGN_OR_RETURN(const std::vector<Row> closed,
                     Query(gone + "RETURNING closed_at IS NULL", parameters));
    return !closed.empty() && closed.at(0).at(0) == "t";
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> closed,
      Query(absl::StrFormat("UPDATE walpost.dead_letters SET closed_at = clock_timestamp() WHERE "
                            "%s%sAND seq = $2::bigint AND decision IS DISTINCT FROM 'discard' "
                            "RETURNING 1",
                            kOurs, kOpen),
            parameters));
  if (!closed.empty()) {
    return true;
  }
  // It was sent, so it must not read as discarded. A decision about a closed row cannot be changed
  // in place.
  ASSIGN_OR_RETURN(
      const std::vector<Row> discarded,
      Query(absl::StrFormat(
                "WITH gone AS (%sAND decision = 'discard' RETURNING *), kept AS (INSERT INTO "
                "walpost.dead_letters OVERRIDING SYSTEM VALUE SELECT sent.* FROM gone CROSS JOIN "
                "LATERAL jsonb_populate_record(ROW(gone.*)::walpost.dead_letters, "
                "jsonb_build_object('decision', 'retry', 'decided_by', NULL, 'closed_at', "
                "coalesce(closed_at, clock_timestamp()))) AS sent) SELECT closed_at IS NULL FROM "
                "gone",
                gone),
            parameters));
  return !discarded.empty() && discarded.at(0).at(0) == "t";
}

absl::StatusOr<bool> DeadLetterTable::Discarded(std::int64_t seq) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> closed,
      Query(absl::StrFormat("UPDATE walpost.dead_letters SET closed_at = clock_timestamp() WHERE "
                            "%s%sAND seq = $2::bigint AND decision = 'discard' RETURNING 1",
                            kOurs, kOpen),
            {pipeline_, std::to_string(seq)}));
  return !closed.empty();
}

absl::StatusOr<bool> DeadLetterTable::KeyDiscarded(const std::string& topic, const std::string& key,
                                                   std::int64_t after) {
  RETURN_IF_ERROR(connection_.BeginTransaction());
  const absl::StatusOr<bool> closed = DiscardKey(topic, key, after);
  RETURN_IF_ERROR(connection_.EndTransaction(closed.status()));
  return closed;
}

absl::StatusOr<bool> DeadLetterTable::DiscardKey(const std::string& topic, const std::string& key,
                                                 std::int64_t after) {
  const std::string of_key = absl::StrFormat("%s%s%s", kOurs, kOpen, kOfKey);
  ASSIGN_OR_RETURN(
      const std::vector<Row> closed,
      Query(
          absl::StrFormat("WITH closed AS (UPDATE walpost.dead_letters SET closed_at = "
                          "clock_timestamp() WHERE %s AND decision = 'discard' AND of_key "
                          "RETURNING seq) SELECT count(*), coalesce(max(seq), $4::bigint), EXISTS "
                          "(SELECT FROM walpost.dead_letters WHERE %s AND seq = $4::bigint) FROM "
                          "closed",
                          of_key, of_key),
          {pipeline_, topic, Hex(key), std::to_string(after)}));
  const bool some = closed.at(0).at(0) != "0";
  const bool taken_back = !some && closed.at(0).at(2) == "t";
  if (!taken_back) {
    RETURN_IF_ERROR(RetryBehind(topic, key, ToNumber<std::int64_t>(closed.at(0).at(1))));
  }
  return some;
}

absl::Status DeadLetterTable::RetryBehind(const std::string& topic, const std::string& key,
                                          std::int64_t after) {
  // Each waits for who adds a row behind one that it changes, and sees that row only the next time.
  // In the end every open row behind the last has a decision, so whoever adds one now does so
  // before a release.
  const std::string later = absl::StrFormat(
      "WITH later AS (UPDATE walpost.dead_letters SET decision = 'retry', of_key = true WHERE "
      "%s%s%s AND decision IS NULL AND decided_at IS NULL AND seq > $4::bigint RETURNING 1) "
      "SELECT count(*) FROM later",
      kOurs, kOpen, kOfKey);
  for (bool found = true; found;) {
    ASSIGN_OR_RETURN(const std::vector<Row> decided,
                     Query(later, {pipeline_, topic, Hex(key), std::to_string(after)}));
    found = decided.at(0).at(0) != "0";
  }
  return absl::OkStatus();
}

absl::Status DeadLetterTable::RetryFailed(std::int64_t seq, const std::string& detail,
                                          bool unpark) {
  // A discard that came meanwhile closes it.
  constexpr const char* kUnpark =
      ", parked = false, of_key = false, decision = CASE WHEN decision = 'discard' THEN decision "
      "END";
  // Why it failed is there first: a verb reports it as soon as the decision is gone.
  const auto write = [&](bool ascii) {
    return Query(absl::StrFormat("UPDATE walpost.dead_letters SET detail = $3, "
                                 "attempts = attempts + 1%s WHERE %s%sAND seq = $2::bigint",
                                 unpark ? kUnpark : "", kOurs, kOpen),
                 {pipeline_, std::to_string(seq), Text(detail, DeadLetter::kTextBytesMax, ascii)})
        .status();
  };
  absl::Status written = write(/*ascii=*/false);
  if (!written.ok() && LacksCharacter()) {
    written = write(/*ascii=*/true);
  }
  if (!written.ok() || unpark) {
    return written;
  }
  return Query(
             absl::StrFormat(
                 "WITH failed AS (SELECT seq, topic, key, parked FROM walpost.dead_letters WHERE "
                 "%s%sAND seq = $2::bigint) UPDATE walpost.dead_letters AS d SET decision = NULL, "
                 "of_key = false, send_to = NULL FROM failed WHERE d.pipeline = $1 AND d.closed_at "
                 "IS NULL AND d.decision = 'retry' AND (d.seq = failed.seq OR (failed.parked AND "
                 "d.parked AND d.topic = failed.topic AND d.key = failed.key))",
                 kOurs, kOpen),
             {pipeline_, std::to_string(seq)})
      .status();
}

absl::StatusOr<std::uint64_t> DeadLetterTable::Decide(const std::vector<std::int64_t>& rows,
                                                      DeadLetter::Decision decision, bool of_key,
                                                      const std::string& send_to) {
  const bool discard = decision == DeadLetter::Decision::kDiscard;
  ASSIGN_OR_RETURN(
      const std::vector<Row> decided,
      Query(
          absl::StrFormat("UPDATE walpost.dead_letters SET decision = $2, of_key = $3::boolean AND "
                          "parked, send_to = $4 WHERE %s%sAND seq = ANY ($5::bigint[]) RETURNING 1",
                          kOurs, kOpen),
          {pipeline_, discard ? "discard" : "retry", of_key ? "t" : "f",
           send_to.empty() ? Cell() : Cell(send_to), Numbers(rows)}));
  return decided.size();
}

absl::StatusOr<bool> DeadLetterTable::Restore(const DeadLetter& row) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> restored,
      Query(absl::StrFormat("UPDATE walpost.dead_letters SET topic = $3, partition = "
                            "nullif($4::integer, -1), event_time_ms = $5::bigint, key = $6::bytea, "
                            "value = $7::bytea, header_names = $8::bytea[], header_values = "
                            "$9::bytea[], value_schema = $10, truncated_bytes = NULL WHERE %s%sAND "
                            "seq = $2::bigint RETURNING 1",
                            kOurs, kOpen),
            {pipeline_, std::to_string(row.seq), row.topic, std::to_string(row.partition),
             std::to_string(row.event_time_ms), Bytea(row.key), Bytea(row.value), Names(row),
             Values(row), row.schema}));
  return !restored.empty();
}

using base::DeadLetterState;

namespace {

// `there`: position, id, whether it is open, whether it is parked. What a verb sends beside the
// stream has no position, and is a row of its own.
DeadLetterState StateOf(const DeadLetter& row, const Row* there) {
  if (row.position.empty()) {
    return DeadLetterState::kOpen;
  }
  if (there == nullptr) {
    return DeadLetterState::kNone;
  }
  const bool parks = !row.parked || there->at(3) == "t";
  return there->at(2) == "t" && parks ? DeadLetterState::kOpen : DeadLetterState::kClosed;
}

}  // namespace

absl::StatusOr<std::uint64_t> DeadLetterTable::InsertAs(const std::vector<DeadLetter>& rows,
                                                        bool ascii) {
  std::string sql =
      "WITH inserted AS (INSERT INTO walpost.dead_letters (pipeline, position, event_id, behind, "
      "event_type, source, topic, "
      "partition, event_time_ms, key, value, header_names, header_values, value_schema, reason, "
      "detail, attempts, parked, truncated_bytes) VALUES ";
  std::vector<Cell> parameters{pipeline_};
  for (const DeadLetter& row : rows) {
    const auto at = [&, first = parameters.size()](std::size_t i) { return first + i + 1; };
    sql += absl::StrFormat(
        "%s($1, $%u, $%u, nullif($%u, ''), $%u, $%u, $%u, nullif($%u::integer, -1), $%u::bigint, "
        "$%u::bytea, $%u::bytea, $%u::bytea[], $%u::bytea[], $%u, $%u, $%u, $%u::integer, "
        "$%u::boolean, $%u::bigint)",
        parameters.size() > 1 ? ", " : "", at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7),
        at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15), at(16), at(17));
    const auto text = [&](const std::string& bytes,
                          std::size_t bytes_max = DeadLetter::kTextBytesMax) {
      parameters.emplace_back(Text(bytes, bytes_max, ascii));
    };
    text(row.position);
    text(row.event_id);
    text(row.position.empty() ? row.place : "");
    text(row.event_type);
    text(row.source);
    text(row.topic);
    parameters.emplace_back(std::to_string(row.partition));
    parameters.emplace_back(std::to_string(row.event_time_ms));
    parameters.push_back(Bytea(row.key));
    parameters.push_back(Bytea(row.value));
    parameters.emplace_back(Names(row));
    parameters.emplace_back(Values(row));
    text(row.schema, std::string::npos);
    text(row.reason);
    text(row.detail);
    parameters.emplace_back(std::to_string(row.attempts));
    parameters.emplace_back(row.parked ? "t" : "f");
    parameters.push_back(row.truncated_bytes ? Cell(std::to_string(*row.truncated_bytes)) : Cell());
  }
  sql +=
      " ON CONFLICT (pipeline, position, event_id) WHERE position <> '' DO NOTHING RETURNING 1) "
      "INSERT INTO walpost.dead_letter_count AS c (pipeline, written) SELECT $1, count(*) FROM "
      "inserted ON CONFLICT (pipeline) DO UPDATE SET written = c.written + excluded.written "
      "RETURNING written";
  ASSIGN_OR_RETURN(const std::vector<Row> counted, Query(sql, parameters));
  return ToNumber<std::uint64_t>(counted.at(0).at(0));
}

// A database that is not UTF-8 lacks some.
bool DeadLetterTable::LacksCharacter() const {
  return connection_.last_sqlstate().substr(0, 2) == "22";
}

// A database that is not UTF-8 lacks some character. Each row is written as it alone can be, so
// that the same row is written in the same way when it comes again beside others.
absl::StatusOr<std::uint64_t> DeadLetterTable::InsertOneByOne(const std::vector<DeadLetter>& rows) {
  std::uint64_t written = 0;
  for (const DeadLetter& row : rows) {
    absl::StatusOr<std::uint64_t> one = InsertAs({row}, /*ascii=*/false);
    if (!one.ok() && LacksCharacter()) {
      one = InsertAs({row}, /*ascii=*/true);
    }
    RETURN_IF_ERROR(one.status());
    written = *one;
  }
  return written;
}

absl::StatusOr<std::uint64_t> DeadLetterTable::Write(const std::vector<DeadLetter>& rows) {
  if (rows.empty()) {
    ASSIGN_OR_RETURN(const Written written, CountWritten());
    return written.rows;
  }
  absl::StatusOr<std::uint64_t> written = InsertAs(rows, /*ascii=*/false);
  if (!written.ok() && LacksCharacter()) {
    written = InsertOneByOne(rows);
  }
  return written.ok() ? written : NotUsable(written.status(), connection_);
}

absl::StatusOr<DeadLetterTable::Inserted> DeadLetterTable::Insert(
    const std::vector<DeadLetter>& rows, const std::vector<bool>& only_known) {
  std::vector<DeadLetter> to_write;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (only_known.empty() || !only_known[i]) {
      to_write.push_back(rows[i]);
    }
  }
  Inserted inserted;
  ASSIGN_OR_RETURN(inserted.written, Write(to_write));
  std::vector<std::string> positions;
  for (const DeadLetter& row : rows) {
    positions.push_back(row.position);
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> there,
      Query("SELECT position, event_id, closed_at IS NULL, parked FROM walpost.dead_letters WHERE "
            "pipeline = $1 AND position = ANY ($2::text[])",
            {pipeline_, Array(positions)}));
  for (const DeadLetter& row : rows) {
    const auto id = [&row](bool ascii) {
      return Text(row.event_id, DeadLetter::kTextBytesMax, ascii);
    };
    const auto found = std::find_if(there.begin(), there.end(), [&](const Row& each) {
      return each.at(0) == row.position && (each.at(1) == id(false) || each.at(1) == id(true));
    });
    inserted.states.push_back(StateOf(row, found == there.end() ? nullptr : &*found));
  }
  return inserted;
}

absl::StatusOr<bool> DeadLetterTable::InsertBehindParked(DeadLetter row) {
  const std::string last = absl::StrFormat(
      "SELECT rtrim(nullif(coalesce(behind, position), ''), '+') || '+' FROM walpost.dead_letters "
      "WHERE %s%s%s ORDER BY %s DESC, seq DESC LIMIT 1 FOR SHARE",
      kOurs, kOpen, kOfKey, absl::StrJoin({kPlace, kStoredPlace}, " DESC, "));
  const std::vector<Cell> parameters{pipeline_, row.topic, Bytea(row.key)};
  for (bool ascii = false;;) {
    RETURN_IF_ERROR(connection_.BeginTransaction());
    // The lock holds up who would close it, until ours stands behind it.
    absl::StatusOr<std::vector<Row>> locked = Query(last, parameters);
    absl::Status done = locked.status();
    const bool parked = locked.ok() && !locked->empty();
    if (parked) {
      row.place = locked->at(0).at(0).value_or("");
      done = InsertAs({row}, ascii).status();
    }
    done = connection_.EndTransaction(done);
    if (LacksCharacter() && !std::exchange(ascii, true)) {
      continue;
    }
    RETURN_IF_ERROR(done);
    if (parked) {
      return true;
    }
    // The last one may have gone while another was added.
    ASSIGN_OR_RETURN(const bool open, KeyIsOpen(row.topic, row.key.value_or("")));
    if (!open) {
      return false;
    }
  }
}

}  // namespace walpost::postgres
