// Connection - an open libpq connection with the session settings walpost relies on.
// Why: replication and ordinary connections differ in three parameters only, and what users expect
//   of libpq (URI, PG*, several hosts, TLS, service and password files) must hold for both.
// Thread: one owner; blocking.   Lifetime: closes on destruction.
// Units/limits: connecting is bounded by connect_timeout per host (10 s unless the user set it, at
//   most `connect_within`). A query is bounded by the deadline given, on our side: a dead network
//   never answers.
// Errors: StreamEnd from Open; a Result with an error from Query, with an empty SQLSTATE when the
//   connection is gone or the deadline passed.
#pragma once

#include <libpq-fe.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/state.h"
#include "postgres/conninfo.h"
#include "postgres/failure.h"

namespace walpost::postgres {

// Result, ServerError - one answer of libpq, and what a failure says; owners of what libpq
// allocates.
// Why: every caller needs the same few things: rows as text, SQLSTATE, and an error as one line.
// Thread: a value.   Lifetime: Text() views live as long as the Result.
// Errors: CHECK-fails on a row or column that the query did not return.
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

// LibpqVersion - of the library loaded, "15.18".
std::string LibpqVersion();

// ServerAddress - of several servers in a conninfo, the one that was reached, as libpq takes it.
struct ServerAddress {
  std::string host;
  std::string hostaddr;
  std::string port;
};

using Deadline = std::chrono::steady_clock::time_point;

constexpr std::chrono::seconds kConnectWithin{60};

// Time-outs that end a session, and the first version that has each: a server rejects a connection
// that sets one it does not know, so they are set behind it.
struct SessionTimeout {
  const char* name;
  int since;
};

inline constexpr SessionTimeout kSessionTimeouts[] = {{"idle_session_timeout", 140000},
                                                      {"transaction_timeout", 170000}};

struct ConnectionOptions {
  std::string conninfo;
  std::string application_name;  // the user's own application_name wins
  bool replication = false;
  std::optional<ServerAddress> server = {};  // absent = any of those in conninfo
  std::chrono::seconds connect_within = kConnectWithin;
};

// In seconds, of the user's connect_timeout ("" = not set): always a limit, at most `within`. libpq
// takes 1 for 2.
std::string ConnectTimeout(const std::string& wanted, std::chrono::seconds within);

// The `options` startup parameter: the user's before what must win, behind defaults of ours.
std::string SessionOptions(const std::string& from_user, bool replication);

class Connection {
 public:
  static std::variant<Connection, base::StreamEnd> Open(const ConnectionOptions& options);

  PGconn* get() const { return connection_.get(); }

  const Endpoint& endpoint() const { return endpoint_; }

  ServerAddress address() const;

  // As PQserverVersion, which forgets it with the connection.
  int server_version() const { return server_version_; }

  // One statement by the simple query protocol, the only one a replication connection speaks.
  Result Query(const std::string& sql, Deadline deadline);

  // How long a statement waits for a lock before it fails (55P03); 0 = for ever, as a stream must.
  // Without a limit it goes on waiting on the server when nobody wants its answer any more.
  Result LimitLockWaits(std::chrono::milliseconds limit, Deadline deadline);

  // After a Query that got no answer in time: waits for it, and drops it.
  void AwaitIdle(Deadline deadline);

 private:
  struct Closer {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };

  explicit Connection(PGconn* connection) : connection_(connection) {}

  // False when the deadline passed or the connection is gone.
  bool AwaitAnswer(Deadline deadline);

  std::unique_ptr<PGconn, Closer> connection_;
  Endpoint endpoint_;
  int server_version_ = 0;
};

}  // namespace walpost::postgres
