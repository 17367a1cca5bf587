#include "postgres/dead_letter_cells.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text.h"

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

absl::Status NotUsable(const absl::Status& status, const SqlConnection& connection) {
  if (connection.last_sqlstate() != "42P01" && connection.last_sqlstate() != "42501") {
    return status;
  }
  const auto error =
      connection.last_sqlstate() == "42P01" ? absl::NotFoundError : absl::PermissionDeniedError;
  return error(absl::StrFormat(
      "%s: dead letters are kept in walpost.dead_letters, which `walpost init` makes (or "
      "sql/V1__walpost.up.sql); `walpost init --with-roles` (or sql/R__roles.sql) gives "
      "outbox_relay its rights",
      std::string(status.message())));
}

}  // namespace walpost::postgres
