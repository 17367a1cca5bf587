// ServerWatch - reads ServerFigures by SQL on a connection of its own, which ends with the look.
// Why: safe_wal_size, wal_status and what is on disk are not in the stream. A server that is to shut
//   down "smart" waits until every ordinary connection ends.
// Thread: one at a time; blocking.
// Units/limits: connecting is bounded by connect_timeout (10 s unless the user set it), each
//   statement by `statement_timeout`.
// Errors: kUnavailable (connect, lost, no answer in time), kPermissionDenied, else
//   kFailedPrecondition.
// Source: PostgreSQL manual, "pg_replication_slots", "pg_stat_replication_slots".
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/server_figures.h"
#include "postgres/connect.h"

namespace walpost::postgres {

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

}  // namespace walpost::postgres
