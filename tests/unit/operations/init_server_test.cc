// What `init` makes, in which order, and that it does so once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include "operations/setup/init.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class InitServerTest : public ServerFixture {};

TEST_F(InitServerTest, MakesSchemaPublicationSlotAndRecord) {
  const Outcome outcome = Init(Options());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.output, MatchesRegex("schema       ok\n"
                                           "partitions   4 made; have outbox.maintain.. called "
                                           "every hour\n"
                                           "publication  shop created\n"
                                           "progress     not remembered .*\n"
                                           "slot         shop created at [0-9A-F]+/[0-9A-F]+\n"
                                           "pipeline     shop recorded\n"));
  EXPECT_EQ(
      Sql("SELECT string_agg(version::text, ',' ORDER BY version) FROM walpost.schema_version"),
      "1,2,4,5");
  EXPECT_EQ(Sql("SELECT count(*) FROM outbox.events"), "0");
  EXPECT_EQ(Sql("SELECT concat_ws(',', pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, "
                "puballtables) FROM pg_publication WHERE pubname = 'shop'"),
            "t,f,f,f,t,f");
  EXPECT_EQ(Sql("SELECT schemaname || '.' || tablename FROM pg_publication_tables"),
            "outbox.events");
  EXPECT_EQ(Sql("SELECT concat_ws(',', plugin, database, temporary) FROM pg_replication_slots "
                "WHERE slot_name = 'shop'"),
            "pgoutput," + database() + ",f");
}

TEST_F(InitServerTest, RecordSaysWhereTheStreamBegins) {
  InitOk();
  EXPECT_EQ(Sql("SELECT concat_ws(',', name, p.slot, publication) FROM walpost.pipeline p"),
            "shop,shop,shop");
  EXPECT_EQ(Sql("SELECT p.system_identifier = c.system_identifier FROM walpost.pipeline p, "
                "pg_control_system() c"),
            "t");
  EXPECT_EQ(Sql("SELECT p.consistent_point = s.confirmed_flush_lsn FROM walpost.pipeline p JOIN "
                "pg_replication_slots s ON s.slot_name = p.slot"),
            "t");
  EXPECT_EQ(Sql("SELECT snapshot ~ '^[0-9]+:[0-9]+:' FROM walpost.pipeline"), "t");
}

TEST_F(InitServerTest, RightToEmitIsRevokedWithoutMessages) {
  InitOptions options = Options();
  options.revoke_emit = true;
  const Outcome outcome = Init(options);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("emitting     only roles with a grant"));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_proc WHERE proname = 'pg_logical_emit_message' AND "
                "has_function_privilege('public', oid, 'EXECUTE')"),
            "0");
}

TEST_F(InitServerTest, SecondRunFindsAllAndChangesNothing) {
  InitOk();
  const std::string before = State();
  const Outcome again = Init(Options());
  EXPECT_EQ(again.exit_code, 0) << again.error;
  EXPECT_THAT(again.output, MatchesRegex("schema       ok\n"
                                         "publication  shop exists\n"
                                         "progress     not remembered .*\n"
                                         "slot         shop exists, confirmed up to .*\n"
                                         "pipeline     shop was set up before\n"));
  EXPECT_EQ(State(), before);
}

TEST_F(InitServerTest, NotesThatWhatLiesBeforeTheSlotIsDealtWith) {
  InitOk();
  EXPECT_EQ(Sql("SELECT delivered_lsn = consistent_point FROM walpost.pipeline"), "t");
}

TEST_F(InitServerTest, EventsThatAreThereStay) {
  InitOk();
  Sql("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES "
      "(gen_random_uuid(), 'a', '1', 't')");
  InitOk();
  EXPECT_EQ(Sql("SELECT count(*) FROM outbox.events"), "1");
}

TEST_F(InitServerTest, PrintSqlChangesNothing) {
  const std::string before = State();
  InitOptions options = Options();
  options.print_sql = true;
  EXPECT_EQ(Init(options).exit_code, 0);
  EXPECT_EQ(State(), before);
}

// Who applies the printed statements by hand must end where `init` ends.
TEST_F(InitServerTest, PrintedSqlIsACompleteSetUp) {
  InitOptions options = Options();
  options.print_sql = true;
  const std::string command = "psql -X -q -v ON_ERROR_STOP=1 '" + Conninfo() + "' >/dev/null";
  FILE* const psql = popen(command.c_str(), "w");
  ASSERT_NE(psql, nullptr);
  const std::string sql = Init(options).output;
  std::fwrite(sql.data(), 1, sql.size(), psql);
  ASSERT_EQ(pclose(psql), 0);
  const std::string before = State();
  const Outcome after = Init(Options());
  EXPECT_EQ(after.exit_code, 0) << after.error;
  EXPECT_THAT(after.output, HasSubstr("pipeline     shop was set up before\n"));
  EXPECT_EQ(State(), before);
}

// The slot cannot be made behind an open transaction; what comes before it must be there, and a
// record that it exists must not.
TEST_F(InitServerTest, PublicationExistsBeforeTheSlotAndTheRecordOnlyAfterIt) {
  Sql("CREATE TABLE t (i int)");
  auto writer = postgres::SqlConnection::Connect(Conninfo(), "slow_writer");
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Execute("BEGIN; INSERT INTO public.t VALUES (1)").ok());
  InitOptions options = Options();
  options.slot_timeout = std::chrono::milliseconds(500);
  const Outcome blocked = Init(options);
  EXPECT_EQ(blocked.exit_code, 69);
  EXPECT_THAT(blocked.output, HasSubstr("publication  shop created\n"));
  EXPECT_THAT(blocked.error, HasSubstr("slow_writer"));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_publication"), "1");
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_replication_slots"), "0");
  EXPECT_EQ(Sql("SELECT count(*) FROM walpost.pipeline"), "0");

  ASSERT_TRUE(writer->Execute("ROLLBACK").ok());
  const Outcome again = Init(Options());
  EXPECT_EQ(again.exit_code, 0) << again.error;
  EXPECT_THAT(again.output, HasSubstr("publication  shop exists\n"));
  EXPECT_EQ(Sql("SELECT count(*) FROM walpost.pipeline"), "1");
}

// It may still delete rows that the backfill has to send.
TEST_F(InitServerTest, MaintenanceThatDoesNotEndThenABackfillEndsBeforeItsSlotIsMade) {
  InitOk();
  auto maintenance = postgres::SqlConnection::Connect(Conninfo(), "maintenance");
  ASSERT_TRUE(maintenance.ok()) << maintenance.status();
  // What outbox.maintain does first. It has written nothing, so the slot itself does not wait for
  // it.
  ASSERT_TRUE(
      maintenance->Execute("BEGIN; LOCK TABLE outbox.retention_note IN SHARE ROW EXCLUSIVE MODE")
          .ok());
  InitOptions second = Options();
  second.name = second.source.slot = "second";
  second.slot_timeout = std::chrono::milliseconds(300);
  second.backfill.emplace();
  second.backfill->pipeline.name = second.name;
  second.backfill->pipeline.source = second.source;
  second.backfill->pipeline.outboxes = {{*outbox::PresetOptions("walpost"), {}}};
  EXPECT_EQ(Init(second).exit_code, 69);
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_replication_slots"), "1");
  EXPECT_EQ(Sql("SELECT NOT backfilled AND snapshot IS NULL FROM walpost.pipeline WHERE name = "
                "'second'"),
            "t");

  ASSERT_TRUE(maintenance->Execute("COMMIT").ok());
  second.slot_timeout = Options().slot_timeout;
  const Outcome again = Init(second);
  EXPECT_EQ(again.exit_code, 0) << again.error;
  EXPECT_EQ(Sql("SELECT backfilled FROM walpost.pipeline WHERE name = 'second'"), "t");
}

TEST_F(InitServerTest, SlotAndPublicationMadeByHandAreTakenAndRecorded) {
  Sql("CREATE TABLE public.outbox (id uuid)");
  Sql("CREATE PUBLICATION shop FOR TABLE public.outbox WITH (publish = 'insert')");
  Sql("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')");
  InitOptions options = Options();
  options.source.tables = {{"public", "outbox"}};
  const Outcome outcome = Init(options);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Sql("SELECT p.consistent_point = s.confirmed_flush_lsn AND p.snapshot IS NULL FROM "
                "walpost.pipeline p JOIN pg_replication_slots s ON s.slot_name = p.slot"),
            "t");
  EXPECT_EQ(Sql("SELECT to_regclass('outbox.events')"), "");
}

TEST_F(InitServerTest, NamesThatNeedQuotesWork) {
  Sql("CREATE SCHEMA \"My Shop\"");
  Sql("CREATE TABLE \"My Shop\".\"Out\"\"box\" (id uuid)");
  InitOptions options = Options();
  options.name = "o'brien";
  options.source.publication = "Shop's \"Pub\"";
  options.source.tables = {{"My Shop", "Out\"box"}};
  const Outcome outcome = Init(options);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Sql("SELECT pubname FROM pg_publication_tables WHERE tablename = 'Out\"box'"),
            "Shop's \"Pub\"");
  EXPECT_EQ(Sql("SELECT name FROM walpost.pipeline"), "o'brien");
  EXPECT_EQ(Init(options).exit_code, 0);
}

TEST_F(InitServerTest, TwoPipelinesShareOneDatabase) {
  InitOk();
  Sql("CREATE TABLE public.outbox (id uuid)");
  InitOptions second = Options();
  second.name = second.source.slot = second.source.publication = "second";
  second.source.tables = {{"public", "outbox"}};
  const Outcome outcome = Init(second);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Sql("SELECT string_agg(name, ',' ORDER BY name) FROM walpost.pipeline"), "second,shop");
}

}  // namespace
}  // namespace walpost::operations
