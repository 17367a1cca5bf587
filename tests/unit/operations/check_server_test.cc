#include "operations/status/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "operations/status/check_parts.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Kafka is librdkafka's own mock cluster, in this process.
class CheckServerTest : public ServerFixture {
 protected:
  CheckOptions CheckOf(int brokers = 3) const {
    CheckOptions options;
    options.name = "shop";
    options.source = Options().source;
    options.tables = {*outbox::PresetOptions("walpost")};
    options.kafka.properties = {{"test.mock.num.brokers", std::to_string(brokers)}};
    options.json = true;
    return options;
  }

  // "failed: ..." of the first line with this name, "" when there is none.
  static std::string LineOf(const Outcome& outcome, const std::string& check) {
    for (const nlohmann::json& line : nlohmann::json::parse(outcome.output)) {
      if (line.at("check") == check) {
        return line.at("level").get<std::string>() + ": " + line.at("text").get<std::string>();
      }
    }
    return "";
  }

  static int Failed(const Outcome& outcome) {
    int failed = 0;
    for (const nlohmann::json& line : nlohmann::json::parse(outcome.output)) {
      failed += line.at("level") == "failed" ? 1 : 0;
    }
    return failed;
  }
};

TEST_F(CheckServerTest, GoodSetUpHasNothingToMend) {
  InitOk();
  const Outcome outcome = Check(CheckOf());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(Failed(outcome), 0) << outcome.output;
  EXPECT_THAT(
      LineOf(outcome, "replication connection"),
      AllOf(HasSubstr("ok: "), HasSubstr("database " + database()), HasSubstr("PostgreSQL ")));
  for (const char* step : {"server_version", "identity", "server", "timeline", "slot", "slot_free",
                           "publication", "tables", "record"}) {
    EXPECT_EQ(LineOf(outcome, step), "ok: ok") << step;
  }
  EXPECT_EQ(LineOf(outcome, "columns of outbox.events"), "ok: fit the mapping");
  EXPECT_EQ(LineOf(outcome, "walpost.pipeline"),
            "ok: set up at " + Sql("SELECT consistent_point FROM walpost.pipeline"));
  EXPECT_EQ(LineOf(outcome, "schema version"), "ok: 5");
  EXPECT_EQ(LineOf(outcome, "table outbox.events"), "ok: 4 partitions");
  EXPECT_THAT(LineOf(outcome, "kafka"), HasSubstr("ok: 3 broker(s)"));
  EXPECT_NE(LineOf(outcome, "minor release"), "");
}

TEST_F(CheckServerTest, SchemaOfAnotherVersionSaysWhatToUpdate) {
  InitOk();
  Sql("DELETE FROM walpost.schema_version WHERE version = 5");
  EXPECT_THAT(LineOf(Check(CheckOf()), "schema version"),
              AllOf(HasSubstr("warning: "), HasSubstr("run `walpost init`")));
  InitOk();
  EXPECT_EQ(LineOf(Check(CheckOf()), "schema version"), "ok: 5");
  Sql("INSERT INTO walpost.schema_version (version) VALUES (99)");
  EXPECT_THAT(LineOf(Check(CheckOf()), "schema version"),
              AllOf(HasSubstr("warning: 99 is newer"), HasSubstr("update walpost")));
}

TEST_F(CheckServerTest, DatabaseThatHasCharactersWhichUtf8LacksIsWarnedOf) {
  EXPECT_EQ(LineOf(Check(CheckOf()), "encoding"), "ok: UTF8");
  const auto line_in = [this](const std::string& encoding) {
    const std::string name = database() + "_" + encoding;
    Server().Sql("CREATE DATABASE \"" + name + "\" ENCODING '" + encoding +
                 "' LOCALE 'C' TEMPLATE template0");
    CheckOptions options = CheckOf();
    options.source.conninfo = Server().Conninfo(name);
    return LineOf(Check(options), "encoding");
  };
  EXPECT_THAT(line_in("WIN1252"), HasSubstr("warning: WIN1252: a character that UTF-8 lacks"));
  EXPECT_EQ(line_in("SQL_ASCII"), "") << "nothing is converted";
}

TEST_F(CheckServerTest, SenderTimeoutThatNoAnswerKeepsIsWarnedOf) {
  const auto line_with = [this](const std::string& setting) {
    Sql("ALTER DATABASE \"" + database() + "\" SET wal_sender_timeout = '" + setting + "'");
    return LineOf(Check(CheckOf()), "wal_sender_timeout");
  };
  EXPECT_THAT(line_with("20ms"), HasSubstr("warning: 20ms"));
  EXPECT_EQ(line_with("1s"), "ok: 1s");
  EXPECT_EQ(line_with("0"), "ok: off");
}

TEST_F(CheckServerTest, MaintenanceThatDidNotRunIsNoticed) {
  InitOk();
  Sql("INSERT INTO outbox.events (aggregate_type, aggregate_id, event_type, created_at) VALUES "
      "('a', '1', 't', '2020-01-01')");
  EXPECT_THAT(LineOf(Check(CheckOf()), "table outbox.events"),
              AllOf(HasSubstr("warning: the default partition has rows"),
                    HasSubstr("SELECT * FROM \"outbox\".maintain()")));
  Sql("DELETE FROM outbox.events");
  Sql("DO $$BEGIN EXECUTE (SELECT 'DROP TABLE ' || string_agg(partition::text, ', ') FROM "
      "outbox.partitions() WHERE ends > now() + interval '1 hour'); END$$");
  EXPECT_THAT(LineOf(Check(CheckOf()), "table outbox.events"),
              HasSubstr("warning: the time of its last partition is nearly over"));
  Sql("SELECT * FROM outbox.maintain()");
  EXPECT_EQ(LineOf(Check(CheckOf()), "table outbox.events"), "ok: 4 partitions");
}

TEST_F(CheckServerTest, RoleThatCannotNoteHowFarItDeliveredIsWarnedOf) {
  InitOk();
  Server().Sql(
      "DO $$BEGIN IF to_regrole('noter') IS NULL THEN CREATE ROLE noter LOGIN REPLICATION; END IF; "
      "END$$");
  Sql("GRANT USAGE ON SCHEMA outbox, walpost TO noter; GRANT SELECT ON walpost.pipeline, "
      "walpost.schema_version, outbox.events TO noter");
  CheckOptions options = CheckOf();
  options.source.conninfo = Conninfo("user=noter");
  EXPECT_THAT(LineOf(Check(options), "table outbox.events"),
              AllOf(HasSubstr("warning: noter may not note how far it has delivered"),
                    HasSubstr("GRANT UPDATE (delivered_lsn) ON walpost.pipeline TO \"noter\"")));
  Sql("GRANT UPDATE (delivered_lsn) ON walpost.pipeline TO noter");
  EXPECT_THAT(LineOf(Check(options), "table outbox.events"), Not(HasSubstr("may not note")));
}

TEST_F(CheckServerTest, WhatALockKeepsFromBeingReadIsAWarning) {
  InitOk();
  Sql("ALTER DATABASE " + database() + " SET lock_timeout = '100ms'");
  auto holder = postgres::SqlConnection::Connect(Conninfo(), "holder");
  ASSERT_TRUE(holder.ok()) << holder.status();
  ASSERT_TRUE(holder
                  ->Execute("BEGIN; LOCK TABLE walpost.schema_version, outbox.events_default IN "
                            "ACCESS EXCLUSIVE MODE")
                  .ok());
  const Outcome outcome = Check(CheckOf());
  EXPECT_THAT(LineOf(outcome, "schema version"), AllOf(HasSubstr("warning: "), HasSubstr("55P03")));
  EXPECT_THAT(LineOf(outcome, "table outbox.events"),
              AllOf(HasSubstr("warning: "), HasSubstr("55P03")));
}

TEST_F(CheckServerTest, RandomIdsAndRowSecurityAreWarnedOf) {
  InitOk();
  Sql("ALTER TABLE outbox.events ENABLE ROW LEVEL SECURITY");
  EXPECT_THAT(LineOf(Check(CheckOf()), "table outbox.events"),
              HasSubstr("warning: row-level security is on"));
  Sql("ALTER TABLE outbox.events DISABLE ROW LEVEL SECURITY, ALTER id SET DEFAULT "
      "gen_random_uuid()");
  EXPECT_THAT(LineOf(Check(CheckOf()), "table outbox.events"),
              HasSubstr("warning: ids are random"));
}

TEST_F(CheckServerTest, ColumnsOfAnOwnTableThatHaveNoBoundAreWarnedOf) {
  Sql("CREATE DOMAIN brief AS text CHECK (octet_length(VALUE) < 100); CREATE DOMAIN name AS "
      "varchar(20); CREATE DOMAIN other_name AS name; CREATE TYPE textrange AS RANGE (subtype = "
      "text); CREATE TABLE own (id uuid PRIMARY KEY, aggregate_id varchar(99), "
      "aggregate_type brief, event_type text CHECK (length(event_type) < 100), payload bytea, "
      "\"hé.ad\" jsonb, price numeric, at timestamptz, other other_name, days daterange)");
  CheckOptions options = CheckOf();
  options.tables[0].schema = "public";
  options.tables[0].table = "own";
  const auto expect_unbounded = [&](const std::string& columns) {
    EXPECT_THAT(LineOf(Check(options), "table public.own"),
                HasSubstr("below 10 million, bounds " + columns + ", and"));
  };
  expect_unbounded("payload, \"hé.ad\"");
  Sql("ALTER TABLE own ADD CHECK (payload IS NULL OR octet_length(payload) BETWEEN 1 AND 1000000), "
      "ADD CHECK (octet_length(\"hé.ad\"::text) <= 1000) NOT VALID");
  EXPECT_EQ(LineOf(Check(options), "table public.own"), "");
  const std::pair<const char*, const char*> no_bounds[] = {
      {"numbers int[]", "array_length(numbers, 1) < 9"},
      {"range textrange", "lower(range) < 'b'"},
      {"a text", "length(a) > 0"},
      {"a jsonb", "pg_column_size(a) < 9"},
      {"a jsonb", "jsonb_array_length(a) < 9"},
      {"a jsonb", "length(a->>'id') < 9"},
      {"a jsonb", "a ? 'x' OR length(a::text) < 9"},
      {"a jsonb", "aggregate_id IS NULL OR length(a::text) < 9"},
      {"a jsonb", "length(event_type) < 9 AND a IS NOT NULL"},
      {"a jsonb", "octet_length(a::text) < 1000000000"},
      {"a jsonb", "NOT (length(a::text) < 9 AND length(event_type) > 9)"},
      {"a jsonb", "(length(a::text) < 9) = (event_type = 'T')"},
      {"a jsonb", "(length(a::text) < 9) IS NOT NULL"},
      {"a bpchar", "octet_length(a::text) < 9"},
      {"a varbit", "octet_length(a) < 9"},
      {"a varchar(10485760)", "a > 'a'"}};
  for (const auto& [column, check] : no_bounds) {
    SCOPED_TRACE(check);
    const std::string name(column, std::string_view(column).find(' '));
    Sql(absl::StrFormat("ALTER TABLE own ADD %s, ADD CONSTRAINT one CHECK (%s)", column, check));
    expect_unbounded(name);
    Sql("ALTER TABLE own DROP CONSTRAINT one, DROP " + name);
  }
}

TEST_F(CheckServerTest, TablesOfThePublicationThatAreNoOutboxAreWarnedOf) {
  InitOk();
  EXPECT_EQ(LineOf(Check(CheckOf()), "tables of shop"), "");
  Sql("CREATE TABLE side (id int, note jsonb); ALTER PUBLICATION shop ADD TABLE side");
  EXPECT_THAT(LineOf(Check(CheckOf()), "tables of shop"),
              HasSubstr("warning: 1 are no outbox, such as public.side: "));
}

TEST_F(CheckServerTest, EmptyDatabaseListsEachProblemWithTheWayOut) {
  const std::string before = State();
  const Outcome outcome = Check(CheckOf());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(LineOf(outcome, "slot"), AllOf(HasSubstr("failed: "), HasSubstr("walpost init")));
  EXPECT_THAT(LineOf(outcome, "publication"),
              AllOf(HasSubstr("failed: "), HasSubstr("walpost init")));
  EXPECT_THAT(
      LineOf(outcome, "columns of outbox.events"),
      AllOf(HasSubstr("failed: "), HasSubstr("walpost init"), HasSubstr("outboxes[].table")));
  EXPECT_THAT(LineOf(outcome, "walpost.pipeline"),
              AllOf(HasSubstr("warning: "), HasSubstr("walpost init")));
  EXPECT_EQ(State(), before);
}

TEST_F(CheckServerTest, LostSlotIsDistinguishedFromOneThatWasNeverMade) {
  InitOk();
  Sql("SELECT pg_drop_replication_slot('shop')");
  const Outcome outcome = Check(CheckOf());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(LineOf(outcome, "slot"),
              AllOf(HasSubstr("failed: "), HasSubstr("walpost.pipeline records it"),
                    Not(HasSubstr("run `walpost init`"))));
}

TEST_F(CheckServerTest, PublicationWithoutTheTableSaysWhatToType) {
  InitOk();
  Sql("ALTER PUBLICATION shop DROP TABLE outbox.events");
  const Outcome outcome = Check(CheckOf());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_EQ(Failed(outcome), 1) << outcome.output;
  EXPECT_THAT(LineOf(outcome, "tables"),
              HasSubstr("ALTER PUBLICATION \"shop\" ADD TABLE \"outbox\".\"events\""));
}

TEST_F(CheckServerTest, ColumnsThatDoNotFitAreNamed) {
  InitOk();
  CheckOptions missing = CheckOf();
  missing.tables[0].columns.key = {"order_id"};
  const Outcome outcome = Check(missing);
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(LineOf(outcome, "columns of outbox.events"),
              AllOf(HasSubstr("failed: "), HasSubstr("order_id")));
  Sql("ALTER TABLE outbox.events DROP COLUMN headers, ADD COLUMN headers int");
  EXPECT_THAT(LineOf(Check(CheckOf()), "columns of outbox.events"),
              AllOf(HasSubstr("failed: "), HasSubstr("headers")));
}

// It binds what `run` binds: domains, precision, and types that only look like text.
TEST_F(CheckServerTest, TypesAreJudgedAsRunJudgesThem) {
  InitOk();
  Sql("CREATE TYPE mood AS ENUM ('wild'); CREATE DOMAIN moody AS mood; CREATE DOMAIN key AS "
      "varchar(20); CREATE TYPE pair AS (a int); CREATE TYPE span AS RANGE (subtype = int4); "
      "CREATE DOMAIN words AS text[]");
  const auto line = [this](const std::string& column, const std::string& type) {
    Sql("CREATE TABLE IF NOT EXISTS boxes (id uuid, k text, type text, topic text, payload bytea, "
        "amount numeric(12,3)); ALTER TABLE boxes DROP COLUMN " +
        column + ", ADD COLUMN " + column + " " + type);
    CheckOptions options = CheckOf();
    outbox::TableOptions& table = options.tables[0];
    table = *outbox::PresetOptions("debezium");
    table.schema = "public";
    table.table = "boxes";
    table.columns.key = {"k"};
    table.columns.aggregate_type = {"topic"};
    table.debezium.emplace().placements = {{"amount", outbox::Placement::Where::kHeader, "amount"}};
    const std::string found = LineOf(Check(options), "columns of public.boxes");
    Sql("DROP TABLE boxes");
    return found;
  };
  for (const char* type : {"mood", "moody", "key", "text", "int"}) {
    EXPECT_THAT(line("k", type), HasSubstr("ok: ")) << type;
  }
  for (const char* type : {"mood[]", "pair", "span", "words", "text[]", "numrange", "inet"}) {
    EXPECT_THAT(line("k", type), HasSubstr("failed: table public.boxes: column k is ")) << type;
    EXPECT_THAT(line("payload", type), HasSubstr("column payload is ")) << type;
    EXPECT_THAT(line("topic", type), HasSubstr("column topic is ")) << type;
    EXPECT_THAT(line("amount", type), HasSubstr("column amount is ")) << type;
  }
  EXPECT_THAT(line("amount", "numeric(12,3)"), HasSubstr("ok: "));
  EXPECT_THAT(line("amount", "numeric"), HasSubstr("failed: "));
}

TEST_F(CheckServerTest, SlotInUseIsAWarningForItMayBeOurs) {
  InitOk();
  auto connected = postgres::Connect(Options().source, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<postgres::Connected>(connected));
  const Outcome outcome = Check(CheckOf());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(LineOf(outcome, "slot_free"),
              AllOf(HasSubstr("warning: "), HasSubstr("your own running walpost")));
  std::get<postgres::Connected>(connected).stream.reset();
  AwaitFreeSlots();
}

// Failure 28.
TEST_F(CheckServerTest, UnlimitedWalIsAWarningAndALimitIsShown) {
  InitOk();
  EXPECT_THAT(LineOf(Check(CheckOf()), "max_slot_wal_keep_size"),
              AllOf(HasSubstr("warning: unlimited"), HasSubstr("set a limit")));
  // A new connection starts with the database's or the server's setting; this one is the server's.
  Server().Sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'");
  Reload();
  EXPECT_EQ(LineOf(Check(CheckOf()), "max_slot_wal_keep_size"),
            "ok: 1024 MB; beyond it the slot is lost");
  Server().Sql("ALTER SYSTEM RESET max_slot_wal_keep_size");
  Reload();
}

TEST_F(CheckServerTest, RoomOfTheSlotIsShownAndLittleIsAWarning) {
  InitOk();
  EXPECT_EQ(LineOf(Check(CheckOf()), "slot room"), "ok: without a limit");
  Server().Sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'");
  Reload();
  EXPECT_THAT(LineOf(Check(CheckOf()), "slot room"),
              AllOf(HasSubstr("ok: "), HasSubstr("MB of WAL until the slot is lost")));
  Server().Sql("ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'");
  Reload();
  for (int i = 0; i < 4; ++i) {
    Sql("SELECT pg_logical_emit_message(false, 'noise', 'x'), pg_switch_wal()");
  }
  EXPECT_THAT(LineOf(Check(CheckOf()), "slot room"),
              AllOf(HasSubstr("warning: "), HasSubstr("raise max_slot_wal_keep_size")));
  Server().Sql("ALTER SYSTEM RESET max_slot_wal_keep_size");
  Reload();
}

TEST_F(CheckServerTest, NoPlaceForOurSlotIsAFailureAndForAnotherAWarning) {
  InitOk();
  EXPECT_THAT(LineOf(Check(CheckOf()), "replication slots"), HasSubstr("ok: 1 of "));
  EXPECT_THAT(LineOf(Check(CheckOf()), "walsenders"), HasSubstr("ok: "));
  Sql("SELECT pg_create_physical_replication_slot('orphan_' || n) FROM "
      "generate_series(2, current_setting('max_replication_slots')::int) n");
  EXPECT_THAT(LineOf(Check(CheckOf()), "replication slots"),
              AllOf(HasSubstr("warning: "), HasSubstr("drop what nobody reads")));
  Sql("SELECT pg_drop_replication_slot('shop'), pg_create_physical_replication_slot('orphan_1')");
  EXPECT_THAT(LineOf(Check(CheckOf()), "replication slots"),
              AllOf(HasSubstr("failed: "), HasSubstr("ours is not among them")));
}

TEST_F(CheckServerTest, ClockThatIsSecondsAwayIsAWarning) {
  auto connection = postgres::SqlConnection::Connect(Conninfo(), "test");
  ASSERT_TRUE(connection.ok());
  const auto line = [&](int seconds) {
    const auto lines = CheckServer("shop", &*connection, [seconds] {
      return std::chrono::system_clock::now() + std::chrono::seconds(seconds);
    });
    return lines.back().name + ": " + lines.back().text;
  };
  EXPECT_EQ(line(0), "clock: agrees with the server's");
  EXPECT_THAT(line(30), AllOf(HasSubstr("clock: the server's is 30."), HasSubstr("s behind")));
  EXPECT_THAT(line(-30), AllOf(HasSubstr("clock: the server's is "), HasSubstr("s ahead")));
}

TEST_F(CheckServerTest, RoleThatMayNotReadTheTableSeesWhatNeedsIt) {
  InitOk();
  EXPECT_THAT(LineOf(Check(CheckOf()), "table outbox.events"), HasSubstr("ok: "));
  Sql("DROP ROLE IF EXISTS streams_only");
  Sql("CREATE ROLE streams_only LOGIN REPLICATION");
  CheckOptions options = CheckOf();
  options.source.conninfo = Conninfo("user=streams_only");
  EXPECT_THAT(LineOf(Check(options), "table outbox.events"),
              AllOf(HasSubstr("warning: streams_only may not read it"),
                    HasSubstr("GRANT SELECT ON \"outbox\".\"events\" TO \"streams_only\"")));
  Sql("DROP ROLE streams_only");
}

TEST_F(CheckServerTest, MissingRecordIsAWarning) {
  InitOk();
  Sql("DELETE FROM walpost.pipeline");
  const Outcome outcome = Check(CheckOf());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(LineOf(outcome, "walpost.pipeline"),
              AllOf(HasSubstr("warning: no record"), HasSubstr("walpost init")));
}

TEST_F(CheckServerTest, DatabaseThatDoesNotAnswerIsUnavailableAndKafkaIsStillLookedAt) {
  CheckOptions options = CheckOf();
  options.source.conninfo = "host=127.0.0.1 port=1 password=geheim";
  const Outcome outcome = Check(options);
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_THAT(LineOf(outcome, "replication connection"), HasSubstr("failed: "));
  EXPECT_THAT(LineOf(outcome, "kafka"), HasSubstr("ok: "));
  EXPECT_THAT(outcome.output, Not(HasSubstr("geheim")));
}

TEST_F(CheckServerTest, KafkaThatDoesNotAnswerIsUnavailable) {
  InitOk();
  CheckOptions options = CheckOf();
  options.kafka.properties = {{"bootstrap.servers", "127.0.0.1:1"}};
  options.kafka_timeout = std::chrono::milliseconds(300);
  const Outcome outcome = Check(options);
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_EQ(Failed(outcome), 1) << outcome.output;
  EXPECT_THAT(LineOf(outcome, "kafka"),
              AllOf(HasSubstr("failed: "), HasSubstr("bootstrap.servers")));
}

TEST_F(CheckServerTest, TopicsNamedByRowsCannotBeLookedUp) {
  InitOk();
  EXPECT_THAT(LineOf(Check(CheckOf()), "topics"), HasSubstr("warning: named by rows"));
}

TEST_F(CheckServerTest, FixedTopicIsLookedUpAndFewReplicasAreAWarning) {
  InitOk();
  for (const int brokers : {1, 3}) {
    CheckOptions options = CheckOf(brokers);
    options.tables[0].topic = "orders";
    const Outcome outcome = Check(options);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_THAT(LineOf(outcome, "topic orders"),
                brokers == 3 ? HasSubstr("ok: ") : HasSubstr("warning: replication factor 1"));
    EXPECT_EQ(LineOf(outcome, "topics"), "");
  }
}

TEST_F(CheckServerTest, TopicsThatAreAllowedAreLookedUp) {
  InitOk();
  CheckOptions options = CheckOf();
  options.topics_allowed = {"orders", "payments", "orders"};
  const Outcome outcome = Check(options);
  EXPECT_THAT(LineOf(outcome, "topic orders"), HasSubstr("ok: "));
  EXPECT_THAT(LineOf(outcome, "topic payments"), HasSubstr("ok: "));
  EXPECT_EQ(LineOf(outcome, "topics"), "");
}

TEST_F(CheckServerTest, TextHasAMarkForEachLineAndColourOnlyOnRequest) {
  CheckOptions options = CheckOf();
  options.json = false;
  const Outcome plain = Check(options);
  EXPECT_THAT(plain.output, AllOf(HasSubstr("✓ identity: ok\n"), HasSubstr("✗ slot: "),
                                  HasSubstr("! walpost.pipeline: "), Not(HasSubstr("\x1b"))));
  options.color = true;
  EXPECT_THAT(Check(options).output, AllOf(HasSubstr("\x1b[32m✓\x1b[0m identity: ok\n"),
                                           HasSubstr("\x1b[31m✗\x1b[0m slot: ")));
}

}  // namespace
}  // namespace walpost::operations
