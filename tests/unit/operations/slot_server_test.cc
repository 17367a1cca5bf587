#include "operations/setup/slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "postgres/connect.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class SlotServerTest : public ServerFixture {
 protected:
  std::string Slots() const { return Sql("SELECT count(*) FROM pg_replication_slots"); }
};

TEST_F(SlotServerTest, ListAsTextHasALineForEachSlot) {
  InitOk();
  Server().Sql("SELECT pg_create_physical_replication_slot('standby')");
  const Outcome outcome = SlotList(Options().source, false);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, StartsWith("NAME "));
  EXPECT_THAT(outcome.output, HasSubstr("\nshop "));
  EXPECT_THAT(outcome.output, HasSubstr("\nstandby "));
  EXPECT_THAT(outcome.output, HasSubstr(" " + database() + " "));
  EXPECT_THAT(outcome.output,
              HasSubstr(Sql("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name "
                            "= 'shop'")));
}

TEST_F(SlotServerTest, ListAsJsonHasEveryField) {
  InitOk();
  const Outcome outcome = SlotList(Options().source, true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  const nlohmann::json slots = nlohmann::json::parse(outcome.output);
  ASSERT_EQ(slots.size(), 1u);
  const nlohmann::json& slot = slots[0];
  EXPECT_EQ(slot.at("name"), "shop");
  EXPECT_EQ(slot.at("plugin"), "pgoutput");
  EXPECT_EQ(slot.at("type"), "logical");
  EXPECT_EQ(slot.at("database"), database());
  EXPECT_EQ(slot.at("active"), false);
  EXPECT_EQ(slot.at("confirmed_flush_lsn"),
            Sql("SELECT confirmed_flush_lsn FROM pg_replication_slots"));
  EXPECT_EQ(slot.at("restart_lsn"), Sql("SELECT restart_lsn FROM pg_replication_slots"));
  EXPECT_EQ(slot.at("wal_status"), "reserved");
  EXPECT_TRUE(slot.at("retained_bytes").is_number());
  EXPECT_TRUE(slot.at("safe_wal_size").is_null());
  EXPECT_TRUE(slot.contains("active_pid"));
  EXPECT_TRUE(slot.contains("invalidation_reason"));
}

TEST_F(SlotServerTest, SlotOfADatabaseWhoseNameIsNotUtf8IsListedAsJson) {
  Server().Sql("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0");
  Server().Sql("CREATE DATABASE other");
  Server().Sql("SELECT pg_create_logical_replication_slot('other', 'pgoutput')", "other");
  Server().Sql("ALTER DATABASE other RENAME TO \"caf\xe9\"", "bytes");
  const Outcome outcome = SlotList(Options().source, true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(nlohmann::json::parse(outcome.output).at(0).at("database"), "caf\uFFFD");
  Server().Sql("SELECT pg_drop_replication_slot('other')");
  Server().Sql("DROP DATABASE \"caf\xe9\"", "bytes");
  Server().Sql("DROP DATABASE bytes");
}

TEST_F(SlotServerTest, NoSlotIsAnEmptyList) {
  EXPECT_EQ(nlohmann::json::parse(SlotList(Options().source, true).output),
            nlohmann::json::array());
}

TEST_F(SlotServerTest, CreateWithoutPublicationIsRejected) {
  const Outcome outcome = SlotCreate(Options());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("publication 'shop' does not exist"), HasSubstr("walpost init")));
  EXPECT_EQ(Slots(), "0");
}

TEST_F(SlotServerTest, CreatedSlotIsRecordedByInit) {
  Sql("CREATE TABLE public.outbox (id uuid)");
  Sql("CREATE PUBLICATION shop FOR TABLE public.outbox WITH (publish = 'insert')");
  InitOptions options = Options();
  options.source.tables = {{"public", "outbox"}};
  const Outcome outcome = SlotCreate(options);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, MatchesRegex("slot shop created at [0-9A-F]+/[0-9A-F]+; `walpost "
                                           "init` records it\n"));
  EXPECT_EQ(Sql("SELECT plugin FROM pg_replication_slots WHERE slot_name = 'shop'"), "pgoutput");
  EXPECT_EQ(Init(options).exit_code, 0);
  EXPECT_EQ(Sql("SELECT count(*) FROM walpost.pipeline"), "1");
}

TEST_F(SlotServerTest, CreateOverAnExistingSlotIsRejected) {
  InitOk();
  const Outcome recorded = SlotCreate(Options());
  EXPECT_EQ(recorded.exit_code, 78);
  EXPECT_THAT(recorded.error, HasSubstr("slot 'shop' exists already"));
  Sql("DELETE FROM walpost.pipeline");
  const Outcome unrecorded = SlotCreate(Options());
  EXPECT_EQ(unrecorded.exit_code, 78);
  EXPECT_THAT(unrecorded.error, HasSubstr("shop"));
}

TEST_F(SlotServerTest, CreateOverALostSlotIsSlotMissing) {
  InitOk();
  Sql("SELECT pg_drop_replication_slot('shop')");
  const Outcome outcome = SlotCreate(Options());
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, StartsWith("slot_missing: "));
  EXPECT_EQ(Slots(), "0");
}

TEST_F(SlotServerTest, DropWithoutYesOnlySaysWhatWouldBeLost) {
  InitOk();
  const Outcome outcome = SlotDrop(Options(), false);
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("slot shop is confirmed up to "),
                    HasSubstr(Sql("SELECT confirmed_flush_lsn FROM pg_replication_slots")),
                    HasSubstr("lost from the stream")));
  EXPECT_THAT(outcome.error, HasSubstr("--yes"));
  EXPECT_EQ(Slots(), "1");
}

TEST_F(SlotServerTest, DropWithYesDropsThatSlotAlone) {
  InitOk();
  Server().Sql("SELECT pg_create_physical_replication_slot('standby')");
  const Outcome outcome = SlotDrop(Options(), true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("dropped\n"));
  EXPECT_EQ(Sql("SELECT string_agg(slot_name::text, ',') FROM pg_replication_slots"), "standby");
}

TEST_F(SlotServerTest, DropOfNoSlotNamesIt) {
  for (const bool confirmed : {false, true}) {
    const Outcome outcome = SlotDrop(Options(), confirmed);
    EXPECT_EQ(outcome.exit_code, 78);
    EXPECT_THAT(outcome.error, HasSubstr("slot 'shop' does not exist"));
  }
}

TEST_F(SlotServerTest, SlotThatIsReadIsListedAsActiveAndNotDropped) {
  InitOk();
  auto connected = postgres::Connect(Options().source, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<postgres::Connected>(connected));
  const nlohmann::json slots = nlohmann::json::parse(SlotList(Options().source, true).output);
  EXPECT_EQ(slots.at(0).at("active"), true);
  EXPECT_GT(slots.at(0).at("active_pid"), 0);
  const Outcome outcome = SlotDrop(Options(), true);
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.error, HasSubstr("active"));
  EXPECT_EQ(Slots(), "1");
  std::get<postgres::Connected>(connected).stream.reset();
  AwaitFreeSlots();
}

}  // namespace
}  // namespace walpost::operations
