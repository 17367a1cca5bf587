// Connection - an open libpq connection with the session settings walpost relies on.
// Why: replication and ordinary connections differ in three parameters only, and what users expect
//   of libpq (URI, PG*, several hosts, TLS, service and password files) must hold for both.
// Thread: one owner; blocking.   Lifetime: closes on destruction.
// Units/limits: connecting is bounded by connect_timeout per host (10 s unless the user set it, at most
//   `connect_within`). A query is bounded by the deadline given, on our side: a dead network never answers.
// Errors: StreamEnd from Open; a Result with an error from Query, with an empty SQLSTATE when the
//   connection is gone or the deadline passed.
#pragma once

#include <libpq-fe.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/stream_end.h"
#include "postgres/conninfo.h"
#include "postgres/failure.h"
#include "postgres/result.h"
#include "postgres/server_address.h"

namespace walpost::postgres {

using Deadline = std::chrono::steady_clock::time_point;

constexpr std::chrono::seconds kConnectWithin{60};

// Time-outs that end a session, and the first version that has each: a server rejects a connection that sets
// one it does not know, so they are set behind it.
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

// In seconds, of the user's connect_timeout ("" = not set): always a limit, at most `within`. libpq takes
// 1 for 2.
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
