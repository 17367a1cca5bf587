// How rows are written.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "postgres/dead_letter_cells.h"
#include "postgres/dead_letters.h"

namespace walpost::postgres {

using base::DeadLetter;
using base::DeadLetterState;

namespace {

// `there`: position, id, whether it is open, whether it is parked. What a verb sends beside the stream has no
// position, and is a row of its own.
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

// A database that is not UTF-8 lacks some character. Each row is written as it alone can be, so that the
// same row is written in the same way when it comes again beside others.
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
