#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

std::string Doubled(std::string_view text, char quote) {
  std::string quoted(1, quote);
  for (const char c : text) {
    if (c == quote) {
      quoted.push_back(quote);
    }
    quoted.push_back(c);
  }
  quoted.push_back(quote);
  return quoted;
}

}  // namespace

std::string QuoteIdentifier(std::string_view name) { return Doubled(name, '"'); }

std::string QuoteLiteral(std::string_view text) {
  // Every session of ours has standard_conforming_strings on, and so has the replication
  // grammar: a backslash is an ordinary character.
  return Doubled(text, '\'');
}

std::string ArrayLiteral(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) {
    list += (list.empty() ? "" : ", ") + QuoteLiteral(text);
  }
  return "ARRAY[" + list + "]::text[]";
}

}  // namespace walpost::postgres
