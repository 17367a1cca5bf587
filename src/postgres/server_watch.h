// ServerWatch - reads ServerFigures by SQL on a connection of its own, which ends with the look.
// Why: safe_wal_size, wal_status and what is on disk are not in the stream. A server that is to
//   shut down "smart" waits until every ordinary connection ends.
// Thread: one at a time; blocking.
// Units/limits: connecting is bounded by connect_timeout (10 s unless the user set it), each
//   statement by `statement_timeout`.
// Errors: kUnavailable (connect, lost, no answer in time), kPermissionDenied, else
//   kFailedPrecondition.
// Source: PostgreSQL manual, "pg_replication_slots", "pg_stat_replication_slots".
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/figures.h"
#include "base/time.h"
#include "postgres/connect.h"
#include "postgres/connection.h"
#include "postgres/replication_stream.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

// The server's clock, as it is compared with the times at which transactions committed, and its
// next transaction id.
// Why: on a standby those are of the primary, whose clock may be ahead, and who gives the ids.
// Thread: any; blocking.

// An SQL expression: microseconds since 1970. Nothing that the server, or the primary of a standby,
// committed before it was read is later. A server that was promoted still has the time of the last
// commit that it replayed, which may be in the future for long.
inline constexpr char kServerClock[] =
    "(extract(epoch FROM CASE WHEN pg_catalog.pg_is_in_recovery() THEN "
    "greatest(pg_catalog.clock_timestamp(), pg_catalog.pg_last_xact_replay_timestamp()) ELSE "
    "pg_catalog.clock_timestamp() END) * 1000000)::bigint";

// An SQL expression: the end of a snapshot, behind the newest transaction that is over. Newer ones
// may be open.
inline constexpr char kSnapshotEnd[] =
    "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())";

// An SQL expression: an id that no transaction had before. It takes one, which a server that is
// short of ids rejects.
inline constexpr char kNextXid[] =
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN "
    "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) ELSE "
    "pg_catalog.pg_current_xact_id() END";

absl::StatusOr<base::WallTime> ReadServerClock(SqlConnection* connection);

struct ServerWatchOptions {
  std::string conninfo;
  std::string application_name = "walpost";
  std::string slot = "walpost";
  std::vector<SourceTable> tables;
  std::chrono::milliseconds statement_timeout{5'000};
};

class ServerWatch {
 public:
  explicit ServerWatch(ServerWatchOptions options);
  ~ServerWatch();
  ServerWatch(const ServerWatch&) = delete;
  ServerWatch& operator=(const ServerWatch&) = delete;

  absl::StatusOr<base::ServerFigures> Look();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// KeepAlive - answers the server on a stream that nobody reads yet, until it is destroyed.
// Why: behind START_REPLICATION the server drops a connection that says nothing for
//   wal_sender_timeout, and what must be looked at before the first row may take longer, where
//   Kafka is slow.
// Thread: has two of its own. Meanwhile nobody else may use the stream.
// Lifetime: within that of the stream. The end waits for both threads: a ping may take 2 s.
// Units/limits: one status every 300 ms, with no position: it confirms nothing. Every 2 s the
//   server is asked whether it is stopping: that waits for its walsenders, and would wait for this
//   one.
// Errors: a stream that is lost is answered no more; whoever reads it next sees why. That of a
//   server that is stopping is ended.
class KeepAlive {
 public:
  // `pinger` asks the stream's server.
  KeepAlive(ReplicationStream* stream, Pinger* pinger);
  ~KeepAlive();
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;

 private:
  void Answer();
  void WatchServer();

  ReplicationStream* const stream_;
  Pinger* const pinger_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_watch_ = false;    // guarded by mutex_
  bool stopping_answers_ = false;  // guarded by mutex_
  std::thread answers_;
  std::thread watch_;
};

// MakePinger - the Pinger of a connection that is to stream from `slot`; and OpenBeside, a second
// one.

// A second connection to the same server. One for replication first: applications that take every
// ordinary one must not keep walpost away. Whatever connect_timeout says, `within` is the limit: a
// server that is stopping waits for the stream meanwhile, and a proxy may take the connection and
// never answer.
std::variant<Connection, StreamEnd> OpenBeside(const ConnectOptions& options,
                                               const ServerAddress& server,
                                               std::chrono::seconds within);

std::unique_ptr<Pinger> MakePinger(const Connection& connection, const ConnectOptions& options);

}  // namespace walpost::postgres
