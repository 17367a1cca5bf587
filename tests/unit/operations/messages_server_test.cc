// `init --with-messages`, what `check` says of messages, and who may emit them: from PostgreSQL 14.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "operations/emit.h"
#include "operations/setup/init.h"
#include "operations/setup/slot_move.h"
#include "operations/status/check.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class MessagesServerTest : public ServerFixture {
 protected:
  InitOptions With(const std::vector<std::string>& prefixes) const {
    InitOptions options = Options();
    options.with_messages = true;
    options.source.message_prefixes = prefixes;
    return options;
  }

  std::string Recorded() const { return Sql("SELECT prefixes FROM walpost.pipeline"); }

  // "" when it was done, else the server's message, detail and hint.
  std::string Emit(const std::string& call, const std::string& conninfo = "") const {
    auto connection =
        postgres::SqlConnection::Connect(conninfo.empty() ? Conninfo() : conninfo, "writer");
    EXPECT_TRUE(connection.ok()) << connection.status();
    return std::string(
        connection->Query("SELECT outbox.emit_message(" + call + ")").status().message());
  }

  void AwaitSql(const std::string& query, const std::string& answer) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (Sql(query) != answer) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << query;
    }
  }

  // All lines of this check.
  std::string LinesOf(const InitOptions& init, const std::string& check) const {
    CheckOptions options;
    options.name = "shop";
    options.source = init.source;
    options.tables = {*outbox::PresetOptions("walpost")};
    options.kafka.properties = {{"test.mock.num.brokers", "1"}};
    options.json = true;
    std::string found;
    for (const nlohmann::json& line : nlohmann::json::parse(Check(options).output)) {
      if (line.at("check") == check) {
        found +=
            line.at("level").get<std::string>() + ": " + line.at("text").get<std::string>() + "\n";
      }
    }
    return found;
  }
};

TEST_F(MessagesServerTest, InitRecordsThePrefixesAndSaysSo) {
  const Outcome outcome = Init(With({"shop", "o'brien"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("messages     shop, o'brien recorded\n"));
  EXPECT_EQ(Recorded(), "{shop,o'brien}");
  EXPECT_EQ(Sql("SELECT count(*) FROM walpost.schema_version WHERE version = 3"), "1");
  EXPECT_EQ(Emit("'t', 'a', '1', 'x', prefix => 'shop'"), "");
  EXPECT_EQ(Emit("'t', 'a', '1', 'x', prefix => 'o''brien'"), "");
}

TEST_F(MessagesServerTest, SecondRunChangesNothing) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  const std::string before = State();
  const Outcome again = Init(With({"shop"}));
  EXPECT_EQ(again.exit_code, 0) << again.error;
  EXPECT_THAT(again.output, HasSubstr("messages     shop recorded before\n"));
  EXPECT_EQ(State(), before);
}

TEST_F(MessagesServerTest, InitSaysWhoMayEmitAndRevokesOnlyWhenAsked) {
  const Outcome outcome = Init(With({"shop"}));
  EXPECT_THAT(outcome.output, HasSubstr("warning      any role may emit messages"));
  InitOptions options = With({"shop"});
  options.revoke_emit = true;
  const Outcome revoked = Init(options);
  ASSERT_EQ(revoked.exit_code, 0) << revoked.error;
  EXPECT_THAT(revoked.output, Not(HasSubstr("warning")));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_proc WHERE proname = 'pg_logical_emit_message' AND "
                "has_function_privilege('public', oid, 'EXECUTE')"),
            "0");
  EXPECT_EQ(Emit("'t', 'a', '1', 'x', prefix => 'shop'"), "");
}

TEST_F(MessagesServerTest, InitWithoutTheFlagLeavesMessagesAlone) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  InitOk();
  EXPECT_EQ(Recorded(), "{shop}");
}

TEST_F(MessagesServerTest, LaterPrefixesAreRecordedByRunningItAgain) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  ASSERT_EQ(Init(With({"billing"})).exit_code, 0);
  EXPECT_EQ(Recorded(), "{billing}");
  const Outcome none = Init(With({}));
  EXPECT_EQ(none.exit_code, 0) << none.error;
  EXPECT_THAT(none.output, HasSubstr("messages     no prefix recorded\n"));
  EXPECT_EQ(Recorded(), "{}");
}

TEST_F(MessagesServerTest, WithoutAnyPrefixThereIsNothingToDo) {
  const std::string before = State();
  const Outcome outcome = Init(With({}));
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("messages.prefixes is empty"));
  EXPECT_EQ(State(), before);
}

// It may stream with the configuration of before, and would pass over what is emitted.
TEST_F(MessagesServerTest, NewPrefixIsNotRecordedBehindARunningInstance) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  {
    auto running = postgres::Connect(Options().source, base::Lsn());
    // The recorded prefix is not read by this one.
    ASSERT_TRUE(std::holds_alternative<postgres::StreamEnd>(running));
    running = postgres::Connect(With({"shop"}).source, base::Lsn());
    ASSERT_TRUE(std::holds_alternative<postgres::Connected>(running));
    EXPECT_EQ(Init(With({"shop"})).exit_code, 0) << "nothing new";
    const Outcome outcome = Init(With({"shop", "billing"}));
    EXPECT_EQ(outcome.exit_code, 78);
    EXPECT_THAT(outcome.error, HasSubstr("slot \"shop\" is in use by PID"));
    EXPECT_EQ(Recorded(), "{shop}");
  }
  AwaitFreeSlots();
  EXPECT_EQ(Init(With({"shop", "billing"})).exit_code, 0);
}

TEST_F(MessagesServerTest, NewPrefixIsNotRecordedBehindAnInstanceThatStartsMeanwhile) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  AwaitFreeSlots();
  auto holder = postgres::SqlConnection::Connect(Conninfo(), "holder");
  ASSERT_TRUE(holder.ok()) << holder.status();
  ASSERT_TRUE(
      holder->Execute("BEGIN; LOCK TABLE walpost.schema_version IN ACCESS EXCLUSIVE MODE").ok());
  Outcome outcome;
  std::thread init([&] { outcome = Init(With({"shop", "billing"})); });
  AwaitSql("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)", "t");
  // It has looked at the slot by now.
  const auto running = postgres::Connect(With({"shop"}).source, base::Lsn());
  EXPECT_TRUE(std::holds_alternative<postgres::Connected>(running));
  EXPECT_TRUE(holder->Execute("ROLLBACK").ok());
  init.join();
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_EQ(Recorded(), "{shop}");
}

TEST_F(MessagesServerTest, NoTableIsNeeded) {
  InitOptions options = With({"shop"});
  options.source.tables.clear();
  const Outcome outcome = Init(options);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Sql("SELECT to_regclass('outbox.events')"), "");
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_publication_tables"), "0");
  EXPECT_EQ(Emit("'t', 'a', '1', 'x'"), "");
}

TEST_F(MessagesServerTest, PrintedSqlIsACompleteSetUp) {
  InitOptions options = With({"shop"});
  options.print_sql = true;
  const std::string command = "psql -X -q -v ON_ERROR_STOP=1 '" + Conninfo() + "' >/dev/null";
  FILE* const psql = popen(command.c_str(), "w");
  ASSERT_NE(psql, nullptr);
  const std::string sql = Init(options).output;
  std::fwrite(sql.data(), 1, sql.size(), psql);
  ASSERT_EQ(pclose(psql), 0);
  EXPECT_THAT(Init(With({"shop"})).output, HasSubstr("messages     shop recorded before\n"));
  EXPECT_EQ(Emit("'t', 'a', '1', 'x'"), "");
}

TEST_F(MessagesServerTest, NewSlotKeepsThePrefixes) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  InitOptions options = With({"shop"});
  options.with_messages = false;
  const Outcome outcome = SlotRecreate(LeavingGap(options), true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Recorded(), "{shop}");
}

TEST_F(MessagesServerTest, NothingIsEmittedThatNobodyReads) {
  ASSERT_EQ(Init(With({"shop", "billing"})).exit_code, 0);
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', prefix => 'other'"),
              AllOf(HasSubstr("walpost does not read messages with prefix 'other'"),
                    HasSubstr("walpost init --with-messages")));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x'"), HasSubstr("Say which: prefix => ..."));
  ASSERT_EQ(Init(With({"billing"})).exit_code, 0);
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', prefix => 'shop'"), HasSubstr("does not read"));
  EXPECT_EQ(Emit("'t', 'a', '1', 'x'"), "") << "the only one there is";
  ASSERT_EQ(Init(With({})).exit_code, 0);
  EXPECT_THAT(Emit("'t', 'a', '1', 'x'"), HasSubstr("does not read messages here"));
}

TEST_F(MessagesServerTest, WhatCouldNotBeDeliveredIsRejectedInTheTransaction) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  EXPECT_THAT(Emit("NULL, 'a', '1', 'x'"), HasSubstr("must have a value"));
  EXPECT_THAT(Emit("'t', '', '1', 'x'"), HasSubstr("must have a value"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', topic => 'no/topic'"), HasSubstr("'no/topic'"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', topic => '..'"), HasSubstr("does not allow topic"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', topic => ''"), HasSubstr("does not allow topic"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', partition => -1"), HasSubstr("partition -1"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', headers => '[1]'"), HasSubstr("a JSON object"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', headers => '{\"\": 1}'"), HasSubstr("must have a name"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', headers => '{\"b\": {}}'"), HasSubstr("header \"b\""));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', topic => '__offsets'"), HasSubstr("no event goes there"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', topic => 'walpost.x'"), HasSubstr("no event goes there"));
  for (const char* name : {"id", "Content-Type", "WALPOST-x", "CE_ID", "__value_schema_id"}) {
    EXPECT_THAT(Emit(std::string("'t', 'a', '1', 'x', headers => '{\"") + name + "\": 1}'"),
                HasSubstr("walpost writes"))
        << name;
  }
  for (const char* name : {"a\\u0001", "walpo\\u017ft-x", " id", "id "}) {
    EXPECT_THAT(Emit(std::string("'t', 'a', '1', 'x', headers => '{\"") + name + "\": 1}'"),
                HasSubstr("printable ASCII"))
        << name;
  }
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', headers => (SELECT jsonb_object_agg(n, 1) FROM "
                   "generate_series(1, 1001) n)"),
              HasSubstr("1000"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', headers => '{\"TraceParent\": \"0\"}', "
                   "traceparent => '0'"),
              HasSubstr("given once"));
  EXPECT_EQ(Emit("'t', 'a', '1', 'x', headers => '{\"TraceParent\": null, \"ce_own\": 1}', "
                 "traceparent => '0', topic => 'shop.x'"),
            "");
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', occurred_at => 'infinity'"), HasSubstr("occurred_at"));
  EXPECT_THAT(Emit("'t', 'a', '1', 'x', occurred_at => '0001-01-01 BC'"), HasSubstr("occurred_at"));
}

TEST_F(MessagesServerTest, WriterNeedsExecuteAndNothingElse) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  const std::string role = "writer_" + database();
  Sql("CREATE ROLE " + role + " LOGIN");
  const std::string writer = Conninfo("user=" + role);
  EXPECT_THAT(Emit("'t', 'a', '1', 'x'", writer), HasSubstr("permission denied for schema outbox"));
  Sql("GRANT USAGE ON SCHEMA outbox TO " + role);
  for (const char* payload : {"'x'::bytea", "'x'::text", "'1'::jsonb"}) {
    EXPECT_THAT(Emit(std::string("'t', 'a', '1', ") + payload, writer),
                HasSubstr("permission denied for function emit_message"));
  }
  Sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO " + role);
  // Also when nobody may call PostgreSQL's own any more.
  Sql("DO $$DECLARE f text; BEGIN FOR f IN SELECT oid::regprocedure FROM pg_proc WHERE proname = "
      "'pg_logical_emit_message' LOOP EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || f || ' FROM "
      "PUBLIC'; "
      "END LOOP; END$$");
  for (const char* payload : {"'x'::bytea", "'x'::text", "'1'::jsonb"}) {
    EXPECT_EQ(Emit(std::string("'t', 'a', '1', ") + payload, writer), "");
  }
  EXPECT_EQ(Sql("SELECT has_table_privilege('" + role + "', 'walpost.pipeline', 'SELECT')"), "f");
  // Objects of its own in the way of the functions change nothing.
  auto connection = postgres::SqlConnection::Connect(writer, "writer");
  ASSERT_TRUE(connection
                  ->Execute("CREATE TEMPORARY TABLE pipeline (prefixes text[]);"
                            "INSERT INTO pipeline VALUES ('{evil}');"
                            "SET search_path = pg_temp, outbox")
                  .ok());
  EXPECT_THAT(
      std::string(connection->Query("SELECT emit_message('t', 'a', '1', 'x', prefix => 'evil')")
                      .status()
                      .message()),
      HasSubstr("does not read"));
  connection->Execute("DROP OWNED BY CURRENT_USER").IgnoreError();
}

TEST_F(MessagesServerTest, CheckSaysWhatIsNotRecordedAndWhoMayEmit) {
  InitOk();
  const InitOptions shop = With({"shop"});
  EXPECT_THAT(LinesOf(shop, "messages.prefixes"),
              AllOf(HasSubstr("warning: shop is not recorded"), HasSubstr("init --with-messages")));
  ASSERT_EQ(Init(shop).exit_code, 0);
  EXPECT_EQ(LinesOf(shop, "messages.prefixes"), "ok: shop is recorded\n");
  const std::string rights = LinesOf(shop, "messages");
  EXPECT_THAT(rights,
              MatchesRegex("warning: any role may emit messages.*REVOKE EXECUTE ON FUNCTION "
                           "pg_logical_emit_message\\(.*FROM PUBLIC.*\n"));
  // What it says works.
  const std::size_t start = rights.find("REVOKE");
  Sql(rights.substr(start, rights.find(" (docs") - start));
  EXPECT_EQ(LinesOf(shop, "messages"), "");
  EXPECT_THAT(LinesOf(With({"billing"}), "record"), HasSubstr("failed: walpost.pipeline"));
  EXPECT_EQ(LinesOf(With({}), "messages.prefixes"), "");
}

TEST_F(MessagesServerTest, EmitMayEmitAMessage) {
  ASSERT_EQ(Init(With({"shop"})).exit_code, 0);
  EmitOptions options;
  options.source = With({"shop"}).source;
  options.message = true;
  const Outcome outcome = operations::Emit(options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, MatchesRegex("[0-9a-f-]+\n"));
  EXPECT_EQ(Sql("SELECT count(*) FROM outbox.events"), "0");
  options.source.message_prefixes.clear();
  EXPECT_THAT(operations::Emit(options).error, HasSubstr("messages.prefixes is empty"));
}

}  // namespace
}  // namespace walpost::operations
