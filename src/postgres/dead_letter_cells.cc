#include "postgres/dead_letter_cells.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "postgres/failure.h"

namespace walpost::postgres {

std::string Text(std::string_view bytes, std::size_t bytes_max, bool ascii) {
  std::string text(bytes.substr(0, bytes_max));
  while (text.size() == bytes_max && bytes.size() > bytes_max && !text.empty() &&
         (static_cast<unsigned char>(bytes[text.size()]) & 0xC0U) == 0x80U) {
    text.pop_back();
  }
  const bool bad = ascii || !base::IsUtf8(text);
  std::replace_if(
      text.begin(), text.end(),
      [bad](char c) { return c == '\0' || (bad && static_cast<unsigned char>(c) >= 0x80U); }, '?');
  return text;
}

std::string Hex(const std::string& bytes) { return "\\x" + absl::BytesToHexString(bytes); }

Cell Bytea(const std::optional<std::string>& bytes) { return bytes ? Cell(Hex(*bytes)) : Cell(); }

std::string Array(const std::vector<std::string>& items) {
  return "{" + absl::StrJoin(items, ",") + "}";
}

std::string Names(const base::DeadLetter& row) {
  std::vector<std::string> items;
  for (const base::DeadLetter::Header& header : row.headers) {
    items.push_back("\"\\" + Hex(header.name) + "\"");
  }
  return Array(items);
}

std::string Values(const base::DeadLetter& row) {
  std::vector<std::string> items;
  for (const base::DeadLetter::Header& header : row.headers) {
    items.push_back(header.value ? "\"\\" + Hex(*header.value) + "\"" : "NULL");
  }
  return Array(items);
}

Cell Unhex(const Cell& cell) { return cell ? Cell(absl::HexStringToBytes(*cell)) : Cell(); }

base::DeadLetter DeadLetterOf(const Row& cells, bool whole) {
  CHECK_EQ(cells.size(), whole ? kWholeCells : kCells);
  std::size_t next = 0;
  const auto cell = [&]() -> const Cell& { return cells[next++]; };
  const auto text = [&] { return cell().value_or(""); };
  base::DeadLetter row;
  row.seq = ToNumber<std::int64_t>(cell());
  row.position = text();
  row.event_id = text();
  row.event_type = text();
  row.source = text();
  row.topic = text();
  row.partition = ToNumber<std::int32_t>(cell());
  row.event_time_ms = ToNumber<std::int64_t>(cell());
  row.key = Unhex(cell());
  row.schema = text();
  row.reason = text();
  row.detail = text();
  row.attempts = ToNumber<std::uint32_t>(cell());
  // Without a key it has no order to keep.
  row.parked = text() == "t" && row.key;
  if (const Cell& bytes = cell()) {
    row.truncated_bytes = ToNumber<std::uint64_t>(bytes);
  }
  row.written_at_ms = ToNumber<std::int64_t>(cell());
  if (const Cell& bytes = cell()) {
    row.value_bytes = ToNumber<std::uint64_t>(bytes);
  }
  const std::string decision = text();
  row.decision = decision == "retry"     ? base::DeadLetter::Decision::kRetry
                 : decision == "discard" ? base::DeadLetter::Decision::kDiscard
                                         : base::DeadLetter::Decision::kNone;
  row.of_key = text() == "t";
  row.send_to = text();
  row.decided_by = text();
  row.closed = text() == "t";
  row.foreign = text() == "t";
  row.taken_back = text() == "t";
  row.place = text();
  if (!whole) {
    return row;
  }
  row.value = Unhex(cell());
  for (const absl::string_view header : absl::StrSplit(text(), ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(header, ':');
    row.headers.push_back(
        {absl::HexStringToBytes(pair.first),
         pair.second == "-" ? Cell() : Cell(absl::HexStringToBytes(pair.second))});
  }
  return row;
}

absl::Status NotUsable(const absl::Status& status, const SqlConnection& connection) {
  if (connection.last_sqlstate() != sqlstate::kUndefinedTable &&
      connection.last_sqlstate() != sqlstate::kInsufficientPrivilege) {
    return status;
  }
  const auto error = connection.last_sqlstate() == sqlstate::kUndefinedTable
                         ? absl::NotFoundError
                         : absl::PermissionDeniedError;
  return error(absl::StrFormat(
      "%s: dead letters are kept in walpost.dead_letters, which `walpost init` makes (or "
      "sql/V1__walpost.up.sql); `walpost init --with-roles` (or sql/R__roles.sql) gives "
      "outbox_relay its rights",
      std::string(status.message())));
}

}  // namespace walpost::postgres
