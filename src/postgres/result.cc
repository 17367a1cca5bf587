#include "postgres/result.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "base/printable.h"

namespace walpost::postgres {
namespace {

std::string Field(const PGresult* result, int code) {
  const char* value = PQresultErrorField(result, code);
  return value == nullptr ? std::string() : OneLine(value);
}

}  // namespace

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!space) {
      line.push_back(c);
    } else if (!line.empty() && line.back() != ' ') {
      line.push_back(' ');
    }
  }
  if (!line.empty() && line.back() == ' ') {
    line.pop_back();
  }
  return line;
}

ServerError ErrorOf(const PGresult* result) {
  ServerError error;
  error.sqlstate = Field(result, PG_DIAG_SQLSTATE);
  error.context = Field(result, PG_DIAG_CONTEXT);
  error.text = Field(result, PG_DIAG_MESSAGE_PRIMARY);
  if (error.text.empty()) {
    error.text = OneLine(PQresultErrorMessage(result));
  }
  // DETAIL may quote row values (a failing row filter, a constraint), HINT never does.
  if (const std::string detail = Field(result, PG_DIAG_MESSAGE_DETAIL);
      !detail.empty() && error.sqlstate.substr(0, 2) != "22" &&
      error.sqlstate.substr(0, 2) != "23") {
    error.text += absl::StrFormat(" (%s)", detail);
  }
  if (const std::string hint = Field(result, PG_DIAG_MESSAGE_HINT); !hint.empty()) {
    error.text += absl::StrFormat(" (hint: %s)", hint);
  }
  // It may quote a whole value.
  error.text = base::Cut(error.text, base::kMessageBytesMax);
  return error;
}

Result::Result(ResultPtr result) : result_(std::move(result)) {
  const ExecStatusType status = PQresultStatus(result_.get());
  if (status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE) {
    error_ = ErrorOf(result_.get());
  }
}

bool Result::IsNull(int row, int column) const {
  CHECK(row < rows() && column < columns()) << "row " << row << ", column " << column;
  return PQgetisnull(result_.get(), row, column) == 1;
}

std::string_view Result::Text(int row, int column) const {
  CHECK(row < rows() && column < columns()) << "row " << row << ", column " << column;
  return std::string_view(PQgetvalue(result_.get(), row, column),
                          static_cast<std::size_t>(PQgetlength(result_.get(), row, column)));
}

}  // namespace walpost::postgres
