#include "operations/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "outbox/options.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class EmitServerTest : public ServerFixture {
 protected:
  EmitOptions Event(const std::string& preset = "walpost") const {
    EmitOptions options;
    options.source = Options().source;
    options.table = *outbox::PresetOptions(preset);
    options.aggregate_type = "orders";
    options.key = "o-1";
    options.type = "OrderPlaced";
    options.payload = "größer";
    return options;
  }
};

TEST_F(EmitServerTest, InsertsOneRowAndPrintsItsId) {
  InitOk();
  const Outcome outcome = Emit(Event());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.output, Sql("SELECT id FROM outbox.events") + "\n");
  EXPECT_EQ(Sql("SELECT concat_ws('|', aggregate_type, aggregate_id, event_type, content_type, "
                "convert_from(payload, 'UTF8')) FROM outbox.events"),
            "orders|o-1|OrderPlaced|text/plain|größer");
}

TEST_F(EmitServerTest, EveryEventHasAnIdOfItsOwn) {
  InitOk();
  EXPECT_NE(Emit(Event()).output, Emit(Event()).output);
  EXPECT_EQ(Sql("SELECT count(*) FROM outbox.events"), "2");
}

TEST_F(EmitServerTest, ValuesAreDataAndNeverSql) {
  InitOk();
  EmitOptions event = Event();
  event.key = "'; DROP TABLE outbox.events; --";
  event.payload = "a\\x'\"\nb";
  ASSERT_EQ(Emit(event).exit_code, 0);
  EXPECT_EQ(Sql("SELECT aggregate_id FROM outbox.events"), event.key);
  EXPECT_EQ(Sql("SELECT convert_from(payload, 'UTF8') FROM outbox.events"), event.payload);
}

TEST_F(EmitServerTest, DebeziumTableTakesJson) {
  Sql("CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, "
      "type text, payload jsonb)");
  EmitOptions event = Event("debezium");
  event.payload = "{\"a\": 1}";
  const Outcome outcome = Emit(event);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Sql("SELECT concat_ws('|', aggregatetype, aggregateid, type, payload->>'a') FROM "
                "public.outbox"),
            "orders|o-1|OrderPlaced|1");
}

TEST_F(EmitServerTest, PayloadThatTheColumnRejectsIsAnErrorAndInsertsNothing) {
  Sql("CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, "
      "type text, payload jsonb)");
  const Outcome outcome = Emit(Event("debezium"));
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_EQ(outcome.output, "");
  EXPECT_THAT(outcome.error, HasSubstr("json"));
  EXPECT_EQ(Sql("SELECT count(*) FROM public.outbox"), "0");
}

// As the mapper reads it: the first name that the table has; optional ones may be missing.
TEST_F(EmitServerTest, ColumnsAreThoseTheMapperWouldRead) {
  Sql("CREATE TABLE public.mine (\"Event Id\" uuid, k text, aggregate_type text, event_type text, "
      "body text)");
  EmitOptions event = Event();
  event.table.schema = "public";
  event.table.table = "mine";
  event.table.columns.id = {"id", "Event Id"};
  event.table.columns.key = {"key", "k"};
  event.table.columns.payload = {"payload", "body"};
  const Outcome outcome = Emit(event);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.output, Sql("SELECT \"Event Id\" FROM mine") + "\n");
  EXPECT_EQ(Sql("SELECT concat_ws('|', k, aggregate_type, event_type, body) FROM mine"),
            "o-1|orders|OrderPlaced|größer");
}

TEST_F(EmitServerTest, MissingTableSaysHowToMendIt) {
  const Outcome outcome = Emit(Event());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("outbox.events"), HasSubstr("walpost init")));
}

TEST_F(EmitServerTest, MissingColumnIsNamed) {
  InitOk();
  EmitOptions event = Event();
  event.table.columns.payload = {"body"};
  const Outcome outcome = Emit(event);
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("body"));
}

TEST_F(EmitServerTest, MissingRightIsAPermissionErrorWithoutThePayload) {
  InitOk();
  Server().Sql(
      "DO $$BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'app') THEN "
      "CREATE ROLE app LOGIN; END IF; END$$");
  Sql("GRANT USAGE ON SCHEMA outbox TO app");
  EmitOptions event = Event();
  event.source.conninfo = Conninfo("user=app");
  const Outcome outcome = Emit(event);
  EXPECT_EQ(outcome.exit_code, 77) << outcome.error;
  EXPECT_THAT(outcome.error, Not(HasSubstr("größer")));
}

}  // namespace
}  // namespace walpost::operations
