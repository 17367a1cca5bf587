// Where `init` must not go on: a lost history, another's slot, a publication that does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "operations/setup/init.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class InitRejectionserverTest : public ServerFixture {
 protected:
  // Init rejects, changes nothing, and returns why.
  std::string Rejection(const InitOptions& options) {
    const std::string before = State();
    const Outcome outcome = Init(options);
    EXPECT_EQ(outcome.exit_code, 78) << outcome.output << outcome.error;
    EXPECT_EQ(State(), before);
    return outcome.error;
  }
};

// A new slot would skip, in silence, every event since the lost one's position.
TEST_F(InitRejectionserverTest, RecordWithoutSlotIsSlotMissingAndChangesNothing) {
  InitOk();
  Sql("SELECT pg_drop_replication_slot('shop')");
  const std::string error = Rejection(Options());
  EXPECT_THAT(error, StartsWith("slot_missing: "));
  EXPECT_THAT(error, HasSubstr("nothing was changed"));
  EXPECT_THAT(error, HasSubstr(Sql("SELECT consistent_point::text FROM walpost.pipeline")));
}

TEST_F(InitRejectionserverTest, RecordWithoutSlotAndPublicationMakesNeither) {
  InitOk();
  Sql("SELECT pg_drop_replication_slot('shop')");
  Sql("DROP PUBLICATION shop");
  EXPECT_THAT(Rejection(Options()), StartsWith("slot_missing: "));
}

// A restored copy has the record, and perhaps a slot of the same name, but another history.
TEST_F(InitRejectionserverTest, RecordOfAnotherClusterIsClusterChanged) {
  InitOk();
  Sql("UPDATE walpost.pipeline SET system_identifier = 7000000000000000001");
  const std::string error = Rejection(Options());
  EXPECT_THAT(error, StartsWith("cluster_changed: "));
  EXPECT_THAT(error, HasSubstr("7000000000000000001"));
}

TEST_F(InitRejectionserverTest, NameAndSlotOfTwoPipelinesDoNotMix) {
  InitOk();
  InitOptions other_slot = Options();
  other_slot.source.slot = "other";
  EXPECT_THAT(Rejection(other_slot), HasSubstr("records pipeline 'shop' on slot 'shop'"));
  InitOptions other_name = Options();
  other_name.name = "other";
  EXPECT_THAT(Rejection(other_name), HasSubstr("records pipeline 'shop' on slot 'shop'"));
}

TEST_F(InitRejectionserverTest, SlotOfAnotherPluginIsForeign) {
  Sql("SELECT pg_create_logical_replication_slot('shop', 'test_decoding')");
  const std::string error = Rejection(Options());
  EXPECT_THAT(error, StartsWith("slot_foreign: "));
  EXPECT_THAT(error, HasSubstr("test_decoding"));
}

TEST_F(InitRejectionserverTest, SlotOfAnotherDatabaseIsForeign) {
  Server().Sql("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')");
  const std::string error = Rejection(Options());
  EXPECT_THAT(error, StartsWith("slot_foreign: "));
  EXPECT_THAT(error, HasSubstr("'postgres'"));
  EXPECT_THAT(error, HasSubstr("'" + database() + "'"));
}

TEST_F(InitRejectionserverTest, SlotOlderThanItsPublicationIsRejected) {
  Sql("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')");
  const Outcome outcome = Init(Options());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("slot 'shop' exists but publication 'shop' does not"));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_publication"), "0");
  EXPECT_EQ(Sql("SELECT count(*) FROM walpost.pipeline"), "0");
}

TEST_F(InitRejectionserverTest, PublicationWithoutInsertsSaysHowToMendIt) {
  Sql("CREATE PUBLICATION shop WITH (publish = 'update')");
  const Outcome outcome = Init(Options());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("ALTER PUBLICATION \"shop\" SET (publish = 'insert')"));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_replication_slots"), "0");
}

TEST_F(InitRejectionserverTest, PublicationOfPartitionsSaysHowToMendIt) {
  InitOptions other = Options();
  other.source.publication = "other";
  ASSERT_EQ(Init(other).exit_code, 0);
  Sql("SELECT pg_drop_replication_slot('shop'); DELETE FROM walpost.pipeline");
  Sql("CREATE PUBLICATION shop FOR TABLE outbox.events WITH (publish = 'insert')");
  const Outcome outcome = Init(Options());
  EXPECT_EQ(outcome.exit_code, 78);
  const std::string fix = "ALTER PUBLICATION \"shop\" SET (publish_via_partition_root = true)";
  EXPECT_THAT(outcome.error, HasSubstr(fix));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_replication_slots"), "0");
  Sql(fix);
  EXPECT_EQ(Init(Options()).exit_code, 0);
}

TEST_F(InitRejectionserverTest, PublicationWithoutTheTableSaysHowToMendIt) {
  Sql("CREATE PUBLICATION shop WITH (publish_via_partition_root = true)");
  const Outcome outcome = Init(Options());
  EXPECT_EQ(outcome.exit_code, 78);
  const std::string fix = "ALTER PUBLICATION \"shop\" ADD TABLE \"outbox\".\"events\"";
  EXPECT_THAT(outcome.error, HasSubstr(fix));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_replication_slots"), "0");
  Sql(fix);
  EXPECT_EQ(Init(Options()).exit_code, 0);
}

// From 15 on a partition has a row filter and a column list of its own.
TEST_F(InitRejectionserverTest, PartitionPublishedOnlyThroughItsParentSaysHowToMendIt) {
  Sql("CREATE SCHEMA app; CREATE TABLE app.root (id int) PARTITION BY RANGE (id); CREATE TABLE "
      "app.leaf PARTITION OF app.root FOR VALUES FROM (0) TO (10); CREATE PUBLICATION shop FOR "
      "TABLE app.root WITH (publish = 'insert')");
  InitOptions options = Options();
  options.source.tables = {{"app", "leaf"}};
  if (Server().Major() >= 15) {
    const Outcome outcome = Init(options);
    EXPECT_EQ(outcome.exit_code, 78);
    const std::string fix = "ALTER PUBLICATION \"shop\" ADD TABLE \"app\".\"leaf\"";
    EXPECT_THAT(outcome.error, HasSubstr(fix));
    EXPECT_EQ(Sql("SELECT count(*) FROM pg_replication_slots"), "0");
    Sql(fix);
  }
  EXPECT_EQ(Init(options).exit_code, 0);
}

// With its parent, it was published, and could have a filter.
TEST_F(InitRejectionserverTest, SlotOlderThanAPartitionsOwnPublicationIsRejected) {
  if (Server().Major() < 15) {
    return;
  }
  Sql("CREATE SCHEMA app; CREATE TABLE app.root (id int) PARTITION BY RANGE (id); CREATE TABLE "
      "app.leaf PARTITION OF app.root FOR VALUES FROM (0) TO (10); CREATE PUBLICATION shop FOR "
      "TABLE app.root WITH (publish = 'insert')");
  Sql("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')");
  Sql("ALTER PUBLICATION shop ADD TABLE app.leaf");
  InitOptions options = Options();
  options.source.tables = {{"app", "leaf"}};
  const Outcome outcome = Init(options);
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("slot 'shop' may be older than what publishes app.leaf"));
}

TEST_F(InitRejectionserverTest, TableOfTheUserIsNotMade) {
  InitOptions options = Options();
  options.source.tables = {{"outbox", "events", {"id"}}, {"shop", "outbox"}};
  EXPECT_THAT(Rejection(options), HasSubstr("table shop.outbox does not exist: create it first"));
}

TEST_F(InitRejectionserverTest, MissingRightIsAPermissionError) {
  Server().Sql(
      "DO $$BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'app') THEN "
      "CREATE ROLE app LOGIN; END IF; END$$");
  InitOptions options = Options();
  options.source.conninfo = Conninfo("user=app");
  const std::string before = State();
  const Outcome outcome = Init(options);
  EXPECT_EQ(outcome.exit_code, 77) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("permission denied"));
  EXPECT_EQ(State(), before);
}

// Failure 8.
TEST(InitOtherServerTest, LostSlotIsSlotInvalidatedAndNotCalledFine) {
  const walpost::testing::PostgresServer server(walpost::testing::PostgresServerOptions{
      {"max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB"},
      {},
      {"--wal-segsize=1"}});
  InitOptions options;
  options.name = "shop";
  options.source.conninfo = server.Conninfo();
  options.source.tables = {{"outbox", "events", {"id"}}};
  ASSERT_EQ(Init(options).exit_code, 0);
  for (int i = 0; i < 6; ++i) {
    server.Sql("CREATE TABLE IF NOT EXISTS t (id int); INSERT INTO t VALUES (1)");
    server.Sql("SELECT pg_switch_wal()");
  }
  server.Sql("CHECKPOINT");
  ASSERT_EQ(server.Sql("SELECT wal_status FROM pg_replication_slots"), "lost");
  const Outcome again = Init(options);
  EXPECT_EQ(again.exit_code, 78) << again.output;
  EXPECT_THAT(again.error, StartsWith("slot_invalidated: slot 'walpost'"));
}

}  // namespace
}  // namespace walpost::operations
