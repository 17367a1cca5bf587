#include "postgres/server_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "postgres/slots.h"
#include "postgres/sql_connection.h"
#include "support/postgres_server.h"

namespace walpost::postgres {
namespace {

using ::testing::HasSubstr;
using walpost::testing::PostgresServer;
using walpost::testing::PostgresServerOptions;

class ServerWatchServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<PostgresServer>(
        PostgresServerOptions{{"max_slot_wal_keep_size=100MB"}, {}, {}});
    server_->Sql(
        "CREATE TABLE days (at timestamptz) PARTITION BY RANGE (at); "
        "CREATE TABLE days_default PARTITION OF days DEFAULT; "
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM ('2026-01-01Z') TO ('2026-01-02Z'); "
        "CREATE TABLE days_2 PARTITION OF days FOR VALUES FROM ('2026-01-02Z') TO ('2026-01-03Z'); "
        "CREATE TABLE words (t text) PARTITION BY RANGE (t); "
        "CREATE TABLE words_1 PARTITION OF words FOR VALUES FROM ('a') TO ('it''s'); "
        "CREATE TABLE plain (t text)");
  }

  static void TearDownTestSuite() { server_.reset(); }

  static ServerWatchOptions Options() {
    ServerWatchOptions options;
    options.conninfo = server_->Conninfo();
    options.application_name = "watch_test";
    options.slot = "shop";
    return options;
  }

  static std::unique_ptr<PostgresServer> server_;
};

std::unique_ptr<PostgresServer> ServerWatchServerTest::server_;

TEST_F(ServerWatchServerTest, ServerWithoutTheSlotStillSaysWhoItIs) {
  const auto figures = ServerWatch(Options()).Look();
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_EQ(std::to_string(figures->system_identifier),
            server_->Sql("SELECT system_identifier FROM pg_control_system()"));
  EXPECT_FALSE(figures->in_recovery);
  EXPECT_TRUE(figures->wal_lsn.valid());
  EXPECT_FALSE(figures->slot);
  EXPECT_TRUE(figures->partitions.empty());
}

TEST_F(ServerWatchServerTest, SlotIsSeenAsTheServerShowsIt) {
  CreateSlotOptions slot;
  slot.conninfo = server_->Conninfo();
  slot.slot = "shop";
  ASSERT_TRUE(CreateSlot(slot).ok());
  ServerWatch watch(Options());
  const auto figures = watch.Look();
  ASSERT_TRUE(figures.ok()) << figures.status();
  ASSERT_TRUE(figures->slot);
  EXPECT_FALSE(figures->slot->active);
  EXPECT_EQ(figures->slot->wal_status, "reserved");
  EXPECT_EQ(figures->slot->invalidation_reason, "");
  EXPECT_EQ(std::to_string(figures->slot->safe_wal_bytes.value()),
            server_->Sql("SELECT safe_wal_size FROM pg_replication_slots"));
  EXPECT_LT(figures->slot->retained_bytes, 1u << 24u);
  EXPECT_EQ(figures->slot->spilled_bytes.has_value(), server_->Major() >= 14);
  server_->Sql("SELECT pg_drop_replication_slot('shop')");
  EXPECT_FALSE(watch.Look()->slot) << "the next look is a new one";
}

TEST_F(ServerWatchServerTest, PartitionsAreReportedOfTablesThatHaveSome) {
  ServerWatchOptions options = Options();
  options.tables = {{"public", "days"}, {"public", "words"}, {"public", "plain"}, {"a'b", "c"}};
  const auto figures = ServerWatch(options).Look();
  ASSERT_TRUE(figures.ok()) << figures.status();
  ASSERT_EQ(figures->partitions.size(), 2u);
  EXPECT_EQ(figures->partitions[0].table, "public.days");
  EXPECT_EQ(figures->partitions[0].count, 3u);
  EXPECT_EQ(figures->partitions[0].oldest_end, base::WallTime(std::chrono::seconds(1'767'312'000)));
  EXPECT_EQ(figures->partitions[0].newest_end, base::WallTime(std::chrono::seconds(1'767'398'400)));
  EXPECT_EQ(figures->partitions[1].table, "public.words");
  EXPECT_EQ(figures->partitions[1].newest_end, base::WallTime()) << "its bounds are no times";
}

// A server that is to shut down "smart" waits for ordinary connections.
TEST_F(ServerWatchServerTest, NothingIsLeftBehindBetweenTwoLooks) {
  ServerWatch watch(Options());
  for (int look = 0; look < 2; ++look) {
    ASSERT_TRUE(watch.Look().ok());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (server_->Sql("SELECT count(*) FROM pg_stat_activity "
                        "WHERE application_name = 'watch_test'") != "0") {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }
}

TEST_F(ServerWatchServerTest, ServerThatIsNotThereIsUnavailable) {
  ServerWatchOptions options = Options();
  options.conninfo = "host=127.0.0.1 port=1 connect_timeout=2";
  const auto figures = ServerWatch(options).Look();
  EXPECT_EQ(figures.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(figures.status().message()), HasSubstr("127.0.0.1"));
}

}  // namespace
}  // namespace walpost::postgres
