// SqlConnection - ordinary SQL for the verbs (init, check, slot, emit); never used by `run` while
// it streams.
// Thread: one owner; blocking.   Lifetime: results own their text.
// Errors: kUnavailable (connect, lost), kPermissionDenied (28xxx, 42501), else kFailedPrecondition;
//   the message carries SQLSTATE, the server's message, detail and hint. Passwords never appear.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "postgres/connection.h"

namespace walpost::postgres {

using Cell = std::optional<std::string>;  // nullopt = NULL
using Row = std::vector<Cell>;

// 0 also for NULL and for what is no such number.
template <typename Number>
Number NumberOf(const Cell& cell) {
  Number number = 0;
  return cell && absl::SimpleAtoi(*cell, &number) ? number : 0;
}

class SqlConnection {
 public:
  // `server`: of several in the conninfo, this one.
  static absl::StatusOr<SqlConnection> Connect(
      const std::string& conninfo, const std::string& application_name,
      const std::optional<ServerAddress>& server = std::nullopt);
  ~SqlConnection();
  SqlConnection(SqlConnection&&) noexcept;
  SqlConnection& operator=(SqlConnection&&) noexcept;

  // One statement with text parameters ($1, $2, ...).
  absl::StatusOr<std::vector<Row>> Query(std::string_view sql,
                                         const std::vector<Cell>& parameters = {});

  // A row at a time, however many there are; the row is valid until the callback returns. An error
  // of the callback ends the statement.
  absl::Status ForEachRow(std::string_view sql, const std::function<absl::Status(const Row&)>& row);

  // Several statements, no parameters, as one simple query (one implicit transaction).
  absl::Status Execute(std::string_view script);

  // Others wait for the rows that it locks, also if this process is suspended or cut off: without a
  // statement for 10 s, the server ends it.
  absl::Status BeginTransaction();
  // COMMIT, or ROLLBACK where `done` is an error, which it then returns. last_sqlstate() stays that
  // of the error.
  absl::Status EndTransaction(const absl::Status& done);

  int server_version() const;
  std::string host() const;
  std::string database() const;
  // SQLSTATE of the last error, empty when the last call succeeded.
  const std::string& last_sqlstate() const;

 private:
  struct Impl;
  explicit SqlConnection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// "name" -> "\"name\"" with quotes doubled; the same for a literal.
std::string QuoteIdentifier(std::string_view name);
std::string QuoteLiteral(std::string_view text);
// {"a", "b"} -> "ARRAY['a', 'b']::text[]".
std::string ArrayLiteral(const std::vector<std::string>& texts);

// `conninfo` in libpq's terms with every secret replaced by ***; for logs, /status and `config
// show`. Each other value as `shown` returns it, when that is given.
std::string RedactConninfo(const std::string& conninfo,
                           const std::function<std::string(std::string)>& shown = nullptr);

}  // namespace walpost::postgres
