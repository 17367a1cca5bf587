// PostgresServer - a throwaway PostgreSQL of its own for one test program.
// Why: tests that need a real server must not share one, nor depend on what is installed as a
// service. Thread: one owner.   Lifetime: initdb and start in the constructor; stopped by its pid,
// and its folder removed, in the
//   destructor. It also ends when the test program is killed.
// Units/limits: listens on a unix socket in its folder and on a free port of 127.0.0.1; no fsync.
// Errors: CHECK-fails when the server cannot be made; its log is printed then.
// Environment: WALPOST_PG_BINDIR names the folder of initdb and postgres; else the newest of
// /usr/lib/postgresql. Run as
//   root, the server runs as the user `postgres`.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace walpost::testing {

struct PostgresServerOptions {
  std::vector<std::string> settings;     // "wal_level=replica"; later ones win over the defaults
  std::vector<std::string> hba_lines;    // put before the line that trusts everyone
  std::vector<std::string> initdb_args;  // "--encoding=SQL_ASCII"
  bool tls = false;                      // with a certificate for 127.0.0.1, certificate()
};

class PostgresServer {
 public:
  explicit PostgresServer(PostgresServerOptions options = {});
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  // key=value, over TCP and as user postgres; `extra` is appended.
  std::string Conninfo(const std::string& database = "postgres",
                       const std::string& extra = "") const;
  // The same over the unix socket.
  std::string SocketConninfo(const std::string& database = "postgres") const;

  int port() const { return port_; }

  pid_t pid() const { return pid_; }

  // Data, socket, log. A test may put files of its own there.
  const std::string& folder() const { return folder_; }

  std::string data_folder() const { return folder_ + "/data"; }

  // What a client must trust (sslrootcert) when `tls` is on.
  std::string certificate() const { return data_folder() + "/server.crt"; }

  // Everything the server has logged so far.
  std::string Log() const;

  // `psql -c` in small: CHECK-fails on an error; the first column of the first row, or "".
  std::string Sql(const std::string& statement, const std::string& database = "postgres") const;

  // 15
  int Major() const;

  void Start();
  // SIGINT = fast, SIGTERM = smart, SIGQUIT = immediate. Waits for the end.
  void Stop(int signal);
  // Only sends it.
  void Signal(int signal) const;
  // True when the server ended within `timeout_ms`.
  bool AwaitExit(int timeout_ms);

 private:
  pid_t Spawn(const std::vector<std::string>& command) const;
  void RunOrDie(const std::vector<std::string>& command) const;
  void MakeCluster();
  void MakeCertificate();
  bool AwaitReady();

  const PostgresServerOptions options_;
  const std::string bin_;
  std::string folder_;
  int port_ = 0;
  pid_t pid_ = 0;
};

}  // namespace walpost::testing
