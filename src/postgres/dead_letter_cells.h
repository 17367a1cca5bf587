// DeadLetterCells - what the statements about walpost.dead_letters have in common.
// Thread: free functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/dead_letter.h"
#include "base/lsn.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

// Rows of the pipeline $1 and of this cluster; open ones.
inline constexpr const char* kOurs =
    "pipeline = $1 AND system_identifier = (SELECT system_identifier FROM pg_control_system())";
inline constexpr const char* kOpen = " AND closed_at IS NULL ";

// Of the parked key $2, $3. As the index dead_letters_key.
inline constexpr const char* kOfKey =
    "AND parked AND topic = $2 AND key = $3::bytea AND sha256(key) = sha256($3::bytea)";

// Rows from the stream; where the event of such a row commits, to be compared with CommitLsnText.
// As the index dead_letters_commit has both.
inline constexpr const char* kStreamed = "position <> ''";
inline constexpr const char* kCommitLsn = "substr(position, 27, 16) COLLATE \"C\"";

// DeadLetter::place; and what orders rows of another cluster, which have none.
inline constexpr const char* kPlace =
    "CASE WHEN left(coalesce(behind, position), 16) = lpad(to_hex((SELECT system_identifier FROM "
    "pg_control_system())), 16, '0') THEN coalesce(behind, position) ELSE '' END COLLATE \"C\"";
inline constexpr const char* kStoredPlace = "coalesce(behind, position) COLLATE \"C\"";

// Not taken over from another cluster, whose positions say nothing here.
inline constexpr const char* kOfThisLog =
    "left(position, 16) = lpad(to_hex((SELECT system_identifier FROM pg_control_system())), 16, "
    "'0')";

// Rows from the stream that were sent to their own topic. As the index dead_letters_sent.
inline constexpr const char* kSent =
    "position <> '' AND closed_at IS NOT NULL AND decision IS DISTINCT FROM 'discard' AND send_to "
    "IS NULL";

inline std::string CommitLsnText(base::Lsn lsn) { return absl::StrFormat("%016x", lsn.value()); }

// In the order that DeadLetterOf reads; between these two stands the row's place. An operator
// writes send_to: in a table that was made without its limit it may be huge.
inline constexpr const char* kColumns =
    "seq, position, event_id, event_type, source, topic, coalesce(partition, -1), event_time_ms, "
    "encode(key, 'hex'), value_schema, reason, detail, attempts, parked, truncated_bytes, "
    "(extract(epoch FROM written_at) * 1000)::bigint, octet_length(value), decision, of_key, "
    "left(send_to, 300), decided_by, closed_at IS NOT NULL, system_identifier <> (SELECT "
    "system_identifier FROM pg_control_system()), decision IS NULL AND decided_at IS NOT NULL, ";
inline constexpr const char* kRecordColumns =
    ", encode(value, 'hex'), (SELECT string_agg(encode(n, 'hex') || ':' || coalesce(encode(v, "
    "'hex'), '-'), ',' ORDER BY o) FROM unnest(header_names, header_values) WITH ORDINALITY AS "
    "h(n, v, o))";

// As the server takes it: UTF-8 without zero bytes; what is not so becomes a question mark.
std::string Text(std::string_view bytes, std::size_t bytes_max, bool ascii);

std::string Hex(const std::string& bytes);
Cell Bytea(const std::optional<std::string>& bytes);

// Array literals.
std::string Array(const std::vector<std::string>& items);
std::string Names(const base::DeadLetter& row);
std::string Values(const base::DeadLetter& row);

Cell Unhex(const Cell& cell);
// Of kColumns and the place: kCells; with `whole` of kRecordColumns behind them: kWholeCells.
inline constexpr std::size_t kCells = 25;
inline constexpr std::size_t kWholeCells = kCells + 2;
base::DeadLetter DeadLetterOf(const Row& cells, bool whole);

template <typename Number>
Number ToNumber(const Cell& cell) {
  Number number = 0;
  (void)absl::SimpleAtoi(cell.value_or("0"), &number);
  return number;
}

// Of a table that is missing, or that the role may not use: says what makes it.
absl::Status NotUsable(const absl::Status& status, const SqlConnection& connection);

}  // namespace walpost::postgres
