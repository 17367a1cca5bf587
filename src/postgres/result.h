// Result, ServerError - one answer of libpq, and what a failure says; owners of what libpq allocates.
// Why: every caller needs the same few things: rows as text, SQLSTATE, and an error as one line.
// Thread: a value.   Lifetime: Text() views live as long as the Result.
// Errors: CHECK-fails on a row or column that the query did not return.
#pragma once

#include <libpq-fe.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace walpost::postgres {

struct ServerError {
  std::string sqlstate;  // empty: libpq's own, the connection is gone
  std::string text;      // message, detail and hint in one line
  std::string context;
};

struct ResultDeleter {
  void operator()(PGresult* result) const { PQclear(result); }
};

using ResultPtr = std::unique_ptr<PGresult, ResultDeleter>;

struct ConninfoDeleter {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};

// An array that ends with a null keyword.
using ConninfoPtr = std::unique_ptr<PQconninfoOption, ConninfoDeleter>;

// Line breaks and runs of white space become one space: a log line is one line.
std::string OneLine(std::string_view text);

// What a PGRES_FATAL_ERROR result says.
ServerError ErrorOf(const PGresult* result);

class Result {
 public:
  explicit Result(ResultPtr result);

  explicit Result(ServerError error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }

  // Only when !ok().
  const ServerError& error() const { return *error_; }

  ExecStatusType status() const { return PQresultStatus(result_.get()); }

  int rows() const { return PQntuples(result_.get()); }

  int columns() const { return PQnfields(result_.get()); }

  bool IsNull(int row, int column) const;
  // NULL reads as the empty string.
  std::string_view Text(int row, int column) const;

  // 't' of a boolean.
  bool True(int row, int column) const { return Text(row, column) == "t"; }

 private:
  ResultPtr result_;
  std::optional<ServerError> error_;
};

}  // namespace walpost::postgres
