// The stream contract on a real server: over TCP, a unix socket and TLS; and what only a real
// server does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "conformance/stream_contract.h"
#include "postgres/connect.h"
#include "support/postgres_server.h"

namespace walpost::testing {
namespace {

using postgres::Connected;
using postgres::ConnectOptions;
using postgres::StreamEnd;
using ::testing::HasSubstr;

constexpr int kServerTimeoutMs = 2'000;

enum class Transport { kTcp, kUnixSocket, kTls };

// A server for all tests of the program; each harness has a database and a slot of its own.
std::unique_ptr<PostgresServer> server;

class ServerEnvironment final : public ::testing::Environment {
 public:
  void SetUp() override {
    PostgresServerOptions options;
    options.tls = true;
    options.settings = {"max_replication_slots=60"};
    server = std::make_unique<PostgresServer>(options);
  }

  void TearDown() override { server.reset(); }
};

const ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new ServerEnvironment());

class RealHarness final : public StreamHarness {
 public:
  explicit RealHarness(Transport transport, const std::string& encoding = "UTF8")
      : transport_(transport) {
    static int count = 0;
    database_ = "stream_" + std::to_string(++count);
    server->Sql("CREATE DATABASE " + database_ + " TEMPLATE template0 ENCODING " + encoding);
    Sql("CREATE TABLE outbox (body text); ALTER TABLE outbox ALTER body SET STORAGE EXTERNAL");
    Sql("CREATE PUBLICATION walpost FOR TABLE outbox");
    Sql(absl::StrFormat("SELECT pg_create_logical_replication_slot('%s', 'pgoutput')", database_));
  }

  ~RealHarness() override {
    if (stopped_) {
      EXPECT_TRUE(server->AwaitExit(kServerTimeoutMs * 10));
      server->Start();
    }
  }

  std::unique_ptr<postgres::ReplicationStream> Open() override {
    auto outcome = postgres::Connect(Options(), base::Lsn());
    if (const auto* end = std::get_if<StreamEnd>(&outcome)) {
      ADD_FAILURE() << end->status;
      return nullptr;
    }
    return std::move(std::get<Connected>(outcome).stream);
  }

  void Produce(int count, std::size_t size) override {
    Sql(
        absl::StrFormat("INSERT INTO outbox SELECT i || ':' || repeat('x', %d) FROM "
                        "generate_series(%d, %d) i",
                        size, next_, next_ + count - 1));
    next_ += count;
  }

  int NumberIn(std::string_view frame) const override {
    // 'w' and 24 bytes, 'I' and 8 bytes, one column: kind and length, then its text.
    constexpr std::size_t kText = 25 + 8 + 5;
    if (frame.size() < kText || frame[0] != 'w' || frame[25] != 'I') {
      return -1;
    }
    return std::stoi(std::string(frame.substr(kText, frame.find(':', kText) - kText)));
  }

  std::string Status() const override {
    // Confirms nothing: write, flush, apply = 0, some clock, no reply wanted.
    return "r" + std::string(31, '\0') + '\1' + '\0';
  }

  bool ServerIsHeldBack() override {
    return Sql("SELECT sent_lsn < pg_current_wal_lsn() FROM pg_stat_replication WHERE pid = " +
               WalsenderPid()) == "t";
  }

  bool StatusArrived() override {
    return Sql("SELECT reply_time IS NOT NULL FROM pg_stat_replication WHERE pid = " +
               WalsenderPid()) == "t";
  }

  int ServerTimeoutMs() const override { return kServerTimeoutMs; }

  void Kill() override { Sql("SELECT pg_terminate_backend(" + WalsenderPid() + ")"); }

  std::string Answer(std::string_view frame) const override {
    if (frame.empty() || frame[0] != 'k') {
      return "";
    }
    // write = walEnd, flush = 0: enough for the server to stop, and it confirms nothing.
    return "r" + std::string(frame.substr(1, 8)) + std::string(25, '\0');
  }

  void Shutdown() override {
    server->Signal(SIGINT);
    stopped_ = true;
  }

  ConnectOptions Options() const {
    ConnectOptions options;
    options.conninfo = transport_ == Transport::kUnixSocket ? server->SocketConninfo(database_)
                                                            : server->Conninfo(database_);
    options.conninfo += transport_ == Transport::kTls
                            ? " sslmode=verify-full sslrootcert=" + server->certificate()
                            : " sslmode=disable";
    options.conninfo += absl::StrFormat(" options='-c wal_sender_timeout=%d'", kServerTimeoutMs);
    options.slot = database_;
    options.tables = {{"public", "outbox"}};
    return options;
  }

  std::string Sql(const std::string& statement) const { return server->Sql(statement, database_); }

 private:
  std::string WalsenderPid() const {
    return Sql(absl::StrFormat("SELECT active_pid FROM pg_replication_slots WHERE slot_name = '%s'",
                               database_));
  }

  const Transport transport_;
  std::string database_;
  int next_ = 0;
  bool stopped_ = false;
};

INSTANTIATE_TEST_SUITE_P(
    Real, StreamContract,
    ::testing::Values(
        HarnessCase{"Tcp", [] { return std::make_unique<RealHarness>(Transport::kTcp); }},
        HarnessCase{"UnixSocket",
                    [] { return std::make_unique<RealHarness>(Transport::kUnixSocket); }},
        HarnessCase{"Tls", [] { return std::make_unique<RealHarness>(Transport::kTls); }}),
    [](const auto& tested) { return std::string(tested.param.name); });

// What only a real server does; the contract's helpers serve here too.
class RealStream : public StreamContract {
 protected:
  const RealHarness& harness() const { return static_cast<const RealHarness&>(*harness_); }
};

INSTANTIATE_TEST_SUITE_P(Real, RealStream,
                         ::testing::Values(HarnessCase{
                             "Tcp", [] { return std::make_unique<RealHarness>(Transport::kTcp); }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// A database whose characters do not all exist in UTF-8.
class RealWin1252Stream : public RealStream {};

INSTANTIATE_TEST_SUITE_P(
    Real, RealWin1252Stream,
    ::testing::Values(HarnessCase{
        "Tcp", [] { return std::make_unique<RealHarness>(Transport::kTcp, "WIN1252"); }}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(RealStream, SilentClientIsDroppedByTheServer) {
  // Proves that the statuses of UnreadStreamHoldsTheServerBack... are what keeps it alive.
  harness_->Produce(4'000, 10'000);
  poll(nullptr, 0, kServerTimeoutMs * 2);
  EXPECT_EQ(AwaitEnd().kind, StreamEnd::Kind::kLost);
}

TEST_P(RealStream, SendThatMeetsAClosedConnectionFailsAndTakeReportsTheEnd) {
  harness_->Kill();
  // The first may still fit the socket of a server that is going; then the descriptor is gone or
  // readable.
  absl::Status sent = stream_->Send(harness_->Status());
  for (int i = 0; i < 1'000 && sent.ok(); ++i) {
    poll(nullptr, 0, 10);
    sent = stream_->Send(harness_->Status());
  }
  EXPECT_EQ(sent.code(), absl::StatusCode::kUnavailable);
  std::string_view frame;
  postgres::ReplicationStream::Next next = stream_->Take(&frame);
  while (next == postgres::ReplicationStream::Next::kFrame) {
    next = stream_->Take(&frame);
  }
  EXPECT_EQ(next, postgres::ReplicationStream::Next::kEnded);
  EXPECT_EQ(stream_->end().kind, StreamEnd::Kind::kLost);
  EXPECT_EQ(stream_->end().sqlstate, "57P01") << "the server's last words, not only a broken pipe";
}

// Failures 31, 32.
TEST_P(RealStream, PublicationDroppedWhileStreamingNeedsAnOperator) {
  harness().Sql("DROP PUBLICATION walpost");
  harness_->Produce(1, 10);
  if (server->Major() >= 18) {  // goes on without the rows, and only warns
    std::optional<std::string> notice;
    std::string_view frame;
    while (!(notice = stream_->TakeNotice()).has_value() &&
           Await(&frame) == postgres::ReplicationStream::Next::kFrame) {
    }
    EXPECT_EQ(notice, "55000 LoadPublications: skipped loading publication \"walpost\"");
    return;
  }
  const StreamEnd& end = AwaitEnd();
  EXPECT_EQ(end.kind, StreamEnd::Kind::kOperator);
  EXPECT_EQ(end.reason, base::HaltReason::kPublicationMissing);
  EXPECT_EQ(end.sqlstate, "42704");
  EXPECT_THAT(end.context, HasSubstr("associated LSN"));
}

// Failure 53.
TEST_P(RealWin1252Stream, RowThatCannotBeSentIsAServerErrorWithItsPosition) {
  harness().Sql("INSERT INTO outbox VALUES (chr(129))");  // 0x81 has no equivalent
  const StreamEnd& end = AwaitEnd();
  EXPECT_EQ(end.kind, StreamEnd::Kind::kServerError);
  EXPECT_EQ(end.sqlstate, "22P05");
  EXPECT_THAT(end.context, HasSubstr("associated LSN"));
}

TEST_P(RealStream, LogicalMessagesComeWhenAskedFor) {
  ConnectOptions options = harness().Options();
  options.message_prefixes = {"prefix"};
  stream_.reset();
  std::variant<Connected, StreamEnd> outcome = postgres::Connect(options, base::Lsn());
  if (server->Major() < 14) {
    ASSERT_TRUE(std::holds_alternative<StreamEnd>(outcome));
    EXPECT_EQ(std::get<StreamEnd>(outcome).reason, base::HaltReason::kSchemaMismatch);
    EXPECT_THAT(std::string(std::get<StreamEnd>(outcome).status.message()),
                HasSubstr("need PostgreSQL 14 or newer"));
    return;
  }
  while (std::holds_alternative<StreamEnd>(outcome)) {  // the walsender of before is going
    ASSERT_EQ(std::get<StreamEnd>(outcome).kind, StreamEnd::Kind::kSlotInUse);
    poll(nullptr, 0, 10);
    outcome = postgres::Connect(options, base::Lsn());
  }
  stream_ = std::move(std::get<Connected>(outcome).stream);
  harness().Sql("SELECT pg_logical_emit_message(true, 'prefix', 'content')");
  std::string_view frame;
  while (Await(&frame) == postgres::ReplicationStream::Next::kFrame &&
         (frame[0] != 'w' || frame[25] != 'M')) {
  }
  EXPECT_THAT(std::string(frame), HasSubstr("content"));
}

}  // namespace
}  // namespace walpost::testing
