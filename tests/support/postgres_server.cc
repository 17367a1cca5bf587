#include "support/postgres_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <grp.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace walpost::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kStartTimeoutMs = 60'000;
constexpr int kStopTimeoutMs = 60'000;
constexpr int kPollMs = 20;
constexpr int kFirstPort = 10240;
constexpr int kLastPort = 32767;

std::string FindBin() {
  if (const char* given = std::getenv("WALPOST_PG_BINDIR"); given != nullptr) {
    return given;
  }
  int newest = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/usr/lib/postgresql", error)) {
    newest = std::max(newest, std::atoi(entry.path().filename().c_str()));
  }
  CHECK_GT(newest, 0)
      << "no PostgreSQL server found: install the package `postgresql`, or name its "
         "bin folder in WALPOST_PG_BINDIR";
  return absl::StrFormat("/usr/lib/postgresql/%d/bin", newest);
}

const passwd* ServerUser() {
  if (geteuid() != 0) {
    return nullptr;
  }
  const passwd* const user = getpwnam("postgres");
  CHECK(user != nullptr) << "running as root needs the user `postgres`";
  return user;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool IsFree(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const auto* const generic = static_cast<sockaddr*>(static_cast<void*>(&address));
  const bool bound = bind(listener, generic, sizeof(address)) == 0;
  close(listener);
  return bound;
}

int PortAfter(int port) { return port < kLastPort ? port + 1 : kFirstPort; }

// As free_port() of waiting.py, which shares the counter: no client is given such a port, and no
// other test, so that it is still free after a restart.
int FreePort() {
  const std::string path =
      (fs::temp_directory_path() / absl::StrCat("walpost-test-port.", getuid())).string();
  const int counter = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK_GE(counter, 0) << path;
  CHECK_EQ(flock(counter, LOCK_EX), 0);
  int port = kFirstPort;
  const std::string next = ReadFile(path);
  CHECK(next.empty() || absl::SimpleAtoi(next, &port)) << path << " holds " << next;
  while (!IsFree(port)) {
    port = PortAfter(port);
  }
  const std::string after = absl::StrCat(PortAfter(port));
  CHECK_EQ(ftruncate(counter, 0), 0);
  CHECK_EQ(pwrite(counter, after.data(), after.size(), 0), static_cast<ssize_t>(after.size()));
  close(counter);
  return port;
}

void WaitABit() { poll(nullptr, 0, kPollMs); }

}  // namespace

PostgresServer::PostgresServer(PostgresServerOptions options)
    : options_(std::move(options)), bin_(FindBin()) {
  std::string pattern = (fs::temp_directory_path() / "walpost-pg-XXXXXX").string();
  CHECK(mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
  if (const passwd* const user = ServerUser(); user != nullptr) {
    CHECK_EQ(chown(folder_.c_str(), user->pw_uid, user->pw_gid), 0);
  }
  MakeCluster();
  Start();
}

PostgresServer::~PostgresServer() {
  if (pid_ != 0) {
    Stop(SIGQUIT);
  }
  std::error_code error;
  fs::remove_all(folder_, error);
}

pid_t PostgresServer::Spawn(const std::vector<std::string>& command) const {
  const passwd* const user = ServerUser();
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const std::string log = folder_ + "/log";
  const pid_t parent = getpid();
  const pid_t child = fork();
  CHECK_GE(child, 0);
  if (child == 0) {
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (user != nullptr &&
        (setgroups(0, nullptr) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) {
      _exit(126);
    }
    prctl(PR_SET_PDEATHSIG, SIGQUIT);
    if (getppid() != parent || chdir("/") != 0) {
      _exit(126);
    }
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  return child;
}

void PostgresServer::RunOrDie(const std::vector<std::string>& command) const {
  const pid_t child = Spawn(command);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command[0] << " failed:\n" << Log();
}

void PostgresServer::MakeCluster() {
  std::vector<std::string> command = {bin_ + "/initdb", "--no-sync", "--auth=trust",
                                      "--username=postgres", "--pgdata=" + data_folder()};
  command.insert(command.end(), options_.initdb_args.begin(), options_.initdb_args.end());
  bool encoding_given = false;
  for (const std::string& argument : options_.initdb_args) {
    encoding_given = encoding_given || argument.rfind("--encoding", 0) == 0;
  }
  command.push_back("--locale=C");
  if (!encoding_given) {
    command.push_back("--encoding=UTF8");
  }
  RunOrDie(command);
  std::ofstream settings(data_folder() + "/postgresql.conf", std::ios::app);
  settings << "fsync = off\nwal_level = logical\nlisten_addresses = '127.0.0.1'\n"
           << "max_connections = 30\nshared_buffers = 16MB\nmax_wal_senders = 10\n"
           << "max_replication_slots = 20\nunix_socket_directories = '" << folder_ << "'\n"
           << "autovacuum = off\n";
  if (options_.tls) {
    MakeCertificate();
    settings << "ssl = on\n";
  }
  for (const std::string& setting : options_.settings) {
    const std::size_t equals = setting.find('=');
    CHECK_NE(equals, std::string::npos) << setting;
    settings << setting.substr(0, equals) << " = '" << setting.substr(equals + 1) << "'\n";
  }
  const std::string hba = ReadFile(data_folder() + "/pg_hba.conf");
  std::ofstream rules(data_folder() + "/pg_hba.conf", std::ios::trunc);
  for (const std::string& line : options_.hba_lines) {
    rules << line << "\n";
  }
  rules << hba;
}

void PostgresServer::MakeCertificate() {
  RunOrDie({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", data_folder() + "/server.key",
            "-out", certificate()});
}

void PostgresServer::Start() {
  CHECK_EQ(pid_, 0) << "already running";
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (port_ == 0) {
      port_ = FreePort();
    }
    pid_ = Spawn({bin_ + "/postgres", "-D", data_folder(), "-p", std::to_string(port_)});
    if (AwaitReady()) {
      return;
    }
    pid_ = 0;
    port_ = 0;  // somebody may have taken it meanwhile
  }
  LOG(FATAL) << "PostgreSQL does not start:\n" << Log();
}

bool PostgresServer::AwaitReady() {
  const std::string conninfo = SocketConninfo() + " connect_timeout=2";
  for (int waited = 0; waited < kStartTimeoutMs; waited += kPollMs) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      return false;
    }
    if (PQping(conninfo.c_str()) == PQPING_OK) {
      return true;
    }
    WaitABit();
  }
  Stop(SIGQUIT);
  return false;
}

void PostgresServer::Signal(int signal) const {
  CHECK_GT(pid_, 0) << "not running";
  CHECK_EQ(kill(pid_, signal), 0);
}

bool PostgresServer::AwaitExit(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (waitpid(pid_, nullptr, WNOHANG) != pid_) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    WaitABit();
  }
  pid_ = 0;
  return true;
}

void PostgresServer::Stop(int signal) {
  Signal(signal);
  if (!AwaitExit(kStopTimeoutMs)) {
    const pid_t pid = pid_;
    Signal(SIGKILL);
    waitpid(pid, nullptr, 0);
    pid_ = 0;
    LOG(FATAL) << "PostgreSQL did not stop:\n" << Log();
  }
}

std::string PostgresServer::Conninfo(const std::string& database, const std::string& extra) const {
  return absl::StrFormat("host=127.0.0.1 port=%d user=postgres dbname=%s %s", port_, database,
                         extra);
}

std::string PostgresServer::SocketConninfo(const std::string& database) const {
  return absl::StrFormat("host=%s port=%d user=postgres dbname=%s", folder_, port_, database);
}

std::string PostgresServer::Log() const { return ReadFile(folder_ + "/log"); }

std::string PostgresServer::Sql(const std::string& statement, const std::string& database) const {
  const std::unique_ptr<PGconn, decltype(&PQfinish)> connection(
      PQconnectdb(SocketConninfo(database).c_str()), &PQfinish);
  CHECK_EQ(PQstatus(connection.get()), CONNECTION_OK) << PQerrorMessage(connection.get());
  PQsetNoticeProcessor(
      connection.get(), [](void* /*context*/, const char* /*text*/) {}, nullptr);
  const std::unique_ptr<PGresult, decltype(&PQclear)> result(
      PQexec(connection.get(), statement.c_str()), &PQclear);
  const ExecStatusType status = PQresultStatus(result.get());
  CHECK(status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
      << statement << ": " << PQerrorMessage(connection.get());
  return PQntuples(result.get()) > 0 ? PQgetvalue(result.get(), 0, 0) : "";
}

int PostgresServer::Major() const { return std::stoi(Sql("SHOW server_version_num")) / 10'000; }

}  // namespace walpost::testing
