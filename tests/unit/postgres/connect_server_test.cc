// Connecting to a real server: what works, and what each rejection becomes.
#include "postgres/connect.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "absl/strings/str_format.h"
#include "postgres/connection.h"
#include "postgres/preflight.h"
#include "support/postgres_server.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using walpost::testing::PostgresServer;
using walpost::testing::PostgresServerOptions;
using Kind = StreamEnd::Kind;

Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

class ConnectServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    PostgresServerOptions options;
    options.hba_lines = {"host all with_password 127.0.0.1/32 scram-sha-256",
                         "host replication rejected 127.0.0.1/32 trust",
                         "host all rejected 127.0.0.1/32 reject"};
    options.tls = true;
    options.settings = {"max_wal_senders=2", "password_encryption=scram-sha-256"};
    server_ = std::make_unique<PostgresServer>(options);
    server_->Sql(
        "CREATE ROLE with_password LOGIN REPLICATION PASSWORD 'open sesame'; "
        "CREATE ROLE rejected LOGIN REPLICATION; CREATE ROLE plain LOGIN; "
        "CREATE ROLE german LOGIN REPLICATION");
    server_->Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
    server_->Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  }

  static void TearDownTestSuite() { server_.reset(); }

  // Waits until the walsenders of the test before have gone.
  void SetUp() override {
    while (server_->Sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'") !=
           "0") {
      poll(nullptr, 0, 10);
    }
  }

  static std::variant<Connected, StreamEnd> TryConnect(const std::string& conninfo) {
    ConnectOptions options;
    options.conninfo = conninfo;
    return Connect(options, base::Lsn());
  }

  static StreamEnd Rejected(const std::string& conninfo) {
    auto outcome = TryConnect(conninfo);
    if (std::holds_alternative<Connected>(outcome)) {
      ADD_FAILURE() << "connected";
      return StreamEnd();
    }
    EXPECT_THAT(std::string(std::get<StreamEnd>(outcome).status.message()), Not(HasSubstr("\n")));
    return std::get<StreamEnd>(outcome);
  }

  static void ExpectConnects(const std::string& conninfo) {
    auto outcome = TryConnect(conninfo);
    if (const auto* end = std::get_if<StreamEnd>(&outcome)) {
      ADD_FAILURE() << conninfo << ": " << end->status;
    }
  }

  static void ExpectAuthFailed(const StreamEnd& end, const std::string& sqlstate,
                               const std::string& part) {
    EXPECT_EQ(end.kind, Kind::kOperator) << end.status;
    EXPECT_EQ(end.reason, HaltReason::kAuthFailed) << end.status;
    EXPECT_EQ(end.sqlstate, sqlstate) << end.status;
    EXPECT_THAT(std::string(end.status.message()), HasSubstr(part));
  }

  static std::unique_ptr<PostgresServer> server_;
};

std::unique_ptr<PostgresServer> ConnectServerTest::server_;

TEST_F(ConnectServerTest, KeyValueUriAndUnixSocketConnect) {
  ExpectConnects(server_->Conninfo());
  SetUp();
  ExpectConnects(absl::StrFormat("postgresql://postgres@127.0.0.1:%d/postgres", server_->port()));
  SetUp();
  ExpectConnects(server_->SocketConninfo());
}

TEST_F(ConnectServerTest, EnvironmentAloneConnects) {
  const std::map<std::string, std::string> environment = {
      {"PGHOST", "127.0.0.1"},
      {"PGPORT", std::to_string(server_->port())},
      {"PGUSER", "postgres"},
      {"PGDATABASE", "postgres"}};
  for (const auto& [name, value] : environment) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  ExpectConnects("");
  for (const auto& [name, value] : environment) {
    unsetenv(name.c_str());
  }
}

TEST_F(ConnectServerTest, ServiceAndPasswordFilesAreUsed) {
  const std::string folder = ::testing::TempDir();
  const std::string service = folder + "/walpost-services";
  const std::string passwords = folder + "/walpost-passwords";
  std::ofstream(service) << "[outbox]\nhost=127.0.0.1\nport=" << server_->port()
                         << "\nuser=with_password\ndbname=postgres\npassfile=" << passwords << "\n";
  std::ofstream(passwords) << "127.0.0.1:*:*:with_password:open sesame\n";
  chmod(passwords.c_str(), 0600);
  setenv("PGSERVICEFILE", service.c_str(), 1);
  ExpectConnects("service=outbox");
  unsetenv("PGSERVICEFILE");
  unlink(service.c_str());
  unlink(passwords.c_str());
}

// Failure 19.
TEST_F(ConnectServerTest, FirstHostDownGoesOnToTheSecond) {
  ExpectConnects(absl::StrFormat(
      "host=127.0.0.1,127.0.0.1 port=1,%d user=postgres target_session_attrs=read-write",
      server_->port()));
}

// Failure 16.
TEST_F(ConnectServerTest, VerifiedTlsConnectsAndAStrangersCertificateIsLost) {
  const std::string conninfo = server_->Conninfo("postgres", "sslmode=verify-full sslrootcert=");
  ExpectConnects(conninfo + server_->certificate());
  const StreamEnd end = Rejected(conninfo + "/etc/ssl/certs/ca-certificates.crt");
  EXPECT_EQ(end.kind, Kind::kLost) << end.status;
}

TEST_F(ConnectServerTest, RightPasswordConnects) {
  ExpectConnects(server_->Conninfo("postgres", "user=with_password password='open sesame'"));
}

// Failures 15, 88.
TEST_F(ConnectServerTest, WrongPasswordIsAuthFailedAndNotShown) {
  const StreamEnd end =
      Rejected(server_->Conninfo("postgres", "user=with_password password=hunter2"));
  ExpectAuthFailed(end, "28P01", "check the password");
  EXPECT_THAT(std::string(end.status.message()),
              AllOf(Not(HasSubstr("hunter2")), HasSubstr("127.0.0.1"), HasSubstr("with_password")));
}

TEST_F(ConnectServerTest, NoPasswordWhereOneIsNeededIsAuthFailed) {
  ExpectAuthFailed(Rejected(server_->Conninfo("postgres", "user=with_password")), "28P01",
                   "check the password");
}

// Failure 14.
TEST_F(ConnectServerTest, HbaRejectionHintsAtTheReplicationKeyword) {
  ExpectAuthFailed(Rejected(server_->Conninfo("postgres", "user=rejected")), "28000",
                   "`replication` does not match logical replication");
}

// Failure 14.
TEST_F(ConnectServerTest, RoleWithoutReplicationNamesTheCommand) {
  ExpectAuthFailed(Rejected(server_->Conninfo("postgres", "user=plain")), "42501",
                   "ALTER ROLE \"plain\" REPLICATION");
}

TEST_F(ConnectServerTest, UnknownRoleAndDatabaseAreAuthFailed) {
  ExpectAuthFailed(Rejected(server_->Conninfo("postgres", "user=nobody_here")), "28000",
                   "nobody_here");
  ExpectAuthFailed(Rejected(server_->Conninfo("nowhere")), "3D000", "database name");
}

TEST_F(ConnectServerTest, OptionTheServerDoesNotKnowNeedsAnOperator) {
  ExpectAuthFailed(Rejected(server_->Conninfo("postgres", "options='-c nonsense=1'")), "42704",
                   "nonsense");
}

TEST_F(ConnectServerTest, MalformedConninfoNeedsAnOperator) {
  EXPECT_EQ(Rejected("postgresql://[half").kind, Kind::kOperator);
  EXPECT_EQ(Rejected("sslmode=perhaps").kind, Kind::kOperator);
  EXPECT_EQ(Rejected("host=a,b,c port=1,2").kind, Kind::kOperator);
}

TEST_F(ConnectServerTest, ConnectionRefusedAndUnknownHostAreLost) {
  const StreamEnd rejected = Rejected("host=127.0.0.1 port=1 user=postgres");
  EXPECT_EQ(rejected.kind, Kind::kLost);
  EXPECT_THAT(std::string(rejected.status.message()), HasSubstr("port 1"));
  EXPECT_EQ(Rejected("host=no-such-host.invalid user=postgres").kind, Kind::kLost);
}

// Failure 12.
TEST_F(ConnectServerTest, TooManyConnectionsIsLost) {
  auto first = Connection::Open({server_->Conninfo(), "walpost", true});
  auto second = Connection::Open({server_->Conninfo(), "walpost", true});
  ASSERT_TRUE(std::holds_alternative<Connection>(second));
  const StreamEnd end = Rejected(server_->Conninfo());
  EXPECT_EQ(end.kind, Kind::kLost);
  EXPECT_EQ(end.sqlstate, "53300");
}

// Failure 54.
TEST_F(ConnectServerTest, SessionSettingsWinOverThoseOfTheRole) {
  server_->Sql(
      "ALTER ROLE german SET datestyle = 'German'; ALTER ROLE german SET bytea_output = "
      "'escape'; ALTER ROLE german SET timezone = 'Asia/Tokyo'; ALTER ROLE german SET "
      "statement_timeout = '1min'; ALTER ROLE german SET client_min_messages = 'error'; ALTER ROLE "
      "german SET default_transaction_isolation = 'serializable'");
  auto opened = Connection::Open({server_->Conninfo("postgres",
                                                    "user=german "
                                                    "options='-c lock_timeout=5s -c geqo=off'"),
                                  "walpost", true});
  ASSERT_TRUE(std::holds_alternative<Connection>(opened));
  const std::map<std::string, std::string> expected = {{"DateStyle", "ISO, MDY"},
                                                       {"IntervalStyle", "postgres"},
                                                       {"extra_float_digits", "3"},
                                                       {"bytea_output", "hex"},
                                                       {"TimeZone", "UTC"},
                                                       {"statement_timeout", "0"},
                                                       {"lock_timeout", "0"},
                                                       {"client_encoding", "UTF8"},
                                                       {"client_min_messages", "warning"},
                                                       {"application_name", "walpost"},
                                                       {"transaction_isolation", "read committed"},
                                                       {"geqo", "off"}};
  for (const auto& [setting, value] : expected) {
    const Result shown = std::get<Connection>(opened).Query("SHOW " + setting, Soon());
    ASSERT_TRUE(shown.ok()) << setting;
    EXPECT_EQ(shown.Text(0, 0), value) << setting;
  }
}

// Failure 54.
TEST_F(ConnectServerTest, SqlAsciiDatabaseIsReadAsItIs) {
  server_->Sql("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0");
  auto opened = Connection::Open({server_->Conninfo("bytes"), "walpost", true});
  ASSERT_TRUE(std::holds_alternative<Connection>(opened));
  const Result shown = std::get<Connection>(opened).Query("SHOW client_encoding", Soon());
  EXPECT_EQ(shown.Text(0, 0), "SQL_ASCII");
}

TEST_F(ConnectServerTest, QueryWithoutAnAnswerEndsAtItsDeadline) {
  auto opened = Connection::Open({server_->Conninfo(), "walpost", true});
  ASSERT_TRUE(std::holds_alternative<Connection>(opened));
  const auto start = std::chrono::steady_clock::now();
  const Result slept = std::get<Connection>(opened).Query("SELECT pg_sleep(60)",
                                                          start + std::chrono::milliseconds(200));
  server_->Sql(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'");
  ASSERT_FALSE(slept.ok());
  EXPECT_EQ(slept.error().sqlstate, "");
  EXPECT_EQ(slept.error().text, "no answer in time");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(ConnectServerTest, OddPublicationNameStreams) {
  server_->Sql("CREATE DATABASE odd");
  server_->Sql("CREATE TABLE t (id int); CREATE PUBLICATION \"My,\"\"Pub's\" FOR TABLE t", "odd");
  server_->Sql("SELECT pg_create_logical_replication_slot('odd', 'pgoutput')", "odd");
  server_->Sql("INSERT INTO t VALUES (1)", "odd");
  ConnectOptions options;
  options.conninfo = server_->Conninfo("odd");
  options.slot = "odd";
  options.publication = "My,\"Pub's";
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  ReplicationStream& stream = *std::get<Connected>(outcome).stream;
  std::string_view frame;
  ReplicationStream::Next next = ReplicationStream::Next::kNothing;
  while (next == ReplicationStream::Next::kNothing ||
         (next == ReplicationStream::Next::kFrame && (frame[0] != 'w' || frame[25] != 'I'))) {
    pollfd descriptor{stream.socket(), POLLIN, 0};
    if (next == ReplicationStream::Next::kNothing) {
      ASSERT_EQ(poll(&descriptor, 1, 20'000), 1);
      stream.Receive();
    }
    next = stream.Take(&frame);
  }
  EXPECT_EQ(next, ReplicationStream::Next::kFrame) << stream.end().status;
}

// A server that is short of transaction ids gives none, and reading needs none.
TEST_F(ConnectServerTest, ConnectThatAdoptsNothingTakesNoTransactionId) {
  server_->Sql("CREATE DATABASE frugal");
  server_->Sql("CREATE TABLE t (id int); CREATE PUBLICATION frugal FOR TABLE t", "frugal");
  server_->Sql("SELECT pg_create_logical_replication_slot('frugal', 'pgoutput')", "frugal");
  ConnectOptions options;
  options.conninfo = server_->Conninfo("frugal");
  options.slot = options.publication = "frugal";
  const std::string next = "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())";
  const std::string before = server_->Sql(next);
  const auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  EXPECT_EQ(server_->Sql(next), before);
  EXPECT_EQ(std::to_string(std::get<Connected>(outcome).facts.next_xid.value), before);
}

// Failure 19.
TEST_F(ConnectServerTest, TimelineHistoryIsReadAfterAPromotion) {
  PostgresServer other;
  other.Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
  other.Stop(SIGINT);
  std::ofstream(other.data_folder() + "/standby.signal").close();
  other.Start();
  ConnectOptions options;
  options.conninfo = other.Conninfo();
  auto standby = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<StreamEnd>(standby));
  other.Sql("SELECT pg_promote()");
  other.Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  const base::SourceFacts& facts = std::get<Connected>(outcome).facts;
  EXPECT_EQ(facts.timeline, 2u);
  ASSERT_EQ(facts.timeline_history.size(), 1u);
  EXPECT_EQ(facts.timeline_history[0].timeline, 1u);
  EXPECT_TRUE(facts.timeline_history[0].end.valid());
  EXPECT_EQ(facts.TimelineOf(base::Lsn(1)), 1u);
  EXPECT_EQ(facts.TimelineOf(facts.server_wal_lsn), 2u);
  const auto& [kind, rejected] =
      std::pair(std::get<StreamEnd>(standby).kind, std::get<StreamEnd>(standby).status);
  if (facts.server_version < 160000) {
    EXPECT_EQ(kind, Kind::kLost);
    EXPECT_THAT(std::string(rejected.message()), HasSubstr("is a standby"));
  } else {  // could stream, if it had the slot
    EXPECT_EQ(kind, Kind::kOperator);
    EXPECT_THAT(std::string(rejected.message()), HasSubstr("slot \"walpost\" on"));
  }
}

// A host that takes connections and never answers would cost each look its whole time-out.
TEST_F(ConnectServerTest, LookGoesToTheServerThatStreamsAndToNoOther) {
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(silent, 1), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &length), 0);
  auto outcome = TryConnect(server_->Conninfo());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  ConnectOptions options;
  options.conninfo = absl::StrFormat("host=127.0.0.1,127.0.0.1 port=%d,%d user=postgres",
                                     ntohs(address.sin_port), server_->port());
  options.server = std::get<Connected>(outcome).server;
  auto seen = LookAgain(options);
  EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(seen));
  pollfd asked{silent, POLLIN, 0};
  EXPECT_EQ(poll(&asked, 1, 0), 0);
  close(silent);
}

// Another process may go on while the guard waits for Kafka.
TEST_F(ConnectServerTest, EndOfTheLogIsReadAgainBeforeTheGuardEndsTheAttempt) {
  PostgresServer other;
  other.Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
  other.Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  ConnectOptions options;
  options.conninfo = other.Conninfo();
  base::Lsn seen;
  auto outcome =
      Connect(options, base::Lsn(), [&](base::SourceFacts* facts) -> std::optional<StreamEnd> {
        if (seen.valid()) {
          EXPECT_GT(facts->server_wal_lsn, seen);
          return std::nullopt;
        }
        seen = facts->server_wal_lsn;
        other.Sql("INSERT INTO t SELECT generate_series(1, 100)");
        StreamEnd end;
        end.kind = Kind::kOperator;
        end.status = absl::FailedPreconditionError("it ends too early");
        return end;
      });
  EXPECT_TRUE(std::holds_alternative<Connected>(outcome));
}

// It would wait for the walsender, which has no end while its client answers and confirms nothing.
TEST_F(ConnectServerTest, ServerMayStopWhileTheGuardIsAskedBehindStart) {
  PostgresServer other;
  other.Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
  other.Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  ConnectOptions options;
  options.conninfo = other.Conninfo();
  int calls = 0;
  Connect(options, base::Lsn(), [&](base::SourceFacts*) {
    if (++calls == 2) {
      other.Sql("INSERT INTO t VALUES (1)");
      other.Signal(SIGINT);
      EXPECT_TRUE(other.AwaitExit(30'000));
    }
    return std::optional<StreamEnd>();
  });
  EXPECT_EQ(calls, 2);
}

TEST_F(ConnectServerTest, PingerSeesThatTheServerHasGivenUpTheConnection) {
  PostgresServer other;
  other.Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
  other.Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  ConnectOptions options;
  options.conninfo = other.Conninfo();
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  Pinger& pinger = *std::get<Connected>(outcome).pinger;
  EXPECT_EQ(pinger.Ping(base::PingQuestion::kSlot), base::PingAnswer::kOurs);
  other.Sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots");
  const auto deadline = Soon();
  while (pinger.Ping(base::PingQuestion::kSlot) != base::PingAnswer::kNotOurs) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
}

TEST_F(ConnectServerTest, PingerSeesAStopThatWaitsForUs) {
  PostgresServer other;
  other.Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
  other.Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  ConnectOptions options;
  options.conninfo = other.Conninfo();
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  auto& [stream, facts, pinger, clear_text_peer, not_noted, server] = std::get<Connected>(outcome);
  EXPECT_EQ(clear_text_peer, "") << "loopback";
  EXPECT_EQ(pinger->Ping(base::PingQuestion::kServes), base::PingAnswer::kServes);
  EXPECT_EQ(pinger->Ping(base::PingQuestion::kSlot), base::PingAnswer::kOurs);
  other.Sql("INSERT INTO t SELECT generate_series(1, 400000)");
  other.Signal(SIGINT);
  const auto deadline = Soon();
  while (pinger->Ping(base::PingQuestion::kServes) != base::PingAnswer::kStopping) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    poll(nullptr, 0, 20);
  }
  ConnectOptions late = options;
  auto rejected = Connect(late, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<StreamEnd>(rejected));
  EXPECT_EQ(std::get<StreamEnd>(rejected).kind, Kind::kLost);
  EXPECT_EQ(std::get<StreamEnd>(rejected).sqlstate, "57P03");
  EXPECT_FALSE(other.AwaitExit(500)) << "the walsender waits for its reader";
  stream.reset();
  EXPECT_TRUE(other.AwaitExit(20'000));
}

}  // namespace
}  // namespace walpost::postgres
