// The ways out of a slot that does not fit what is remembered, on a real server and a mock Kafka.
#include "operations/setup/slot_move.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "kafka/progress.h"
#include "operations/setup/pipeline_record.h"
#include "postgres/connect.h"
#include "postgres/dead_letters.h"
#include "support/mock_kafka.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using base::Lsn;
using base::Progress;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SlotMoveTest : public ServerFixture {
 protected:
  SlotMoveTest() { mock_.CreateTopic("progress", 1); }

  InitOptions Remembering() const {
    InitOptions options = Options();
    options.progress_topic = "progress";
    options.kafka.properties = {{"bootstrap.servers", mock_.bootstrap()}};
    return options;
  }

  void InitRemembering() const {
    const Outcome outcome = Init(Remembering());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  }

  std::vector<Progress> Remembered() const {
    const auto records = kafka::ReadProgress(Remembering().kafka, {"progress", "shop"},
                                             {std::chrono::milliseconds(10'000)});
    EXPECT_TRUE(records.ok()) << records.status();
    return records.value_or(std::vector<Progress>());
  }

  Lsn Confirmed() const {
    return Lsn::Parse(Sql("SELECT confirmed_flush_lsn FROM pg_replication_slots "
                          "WHERE slot_name = 'shop'"))
        .value_or(Lsn());
  }

  // Without what `init` remembers.
  std::vector<Progress> Decided() const {
    std::vector<Progress> records = Remembered();
    std::erase_if(records, [](const Progress& each) { return each.epoch == 0; });
    return records;
  }

  void Insert() const {
    Sql("INSERT INTO outbox.events (id, aggregate_type, aggregate_id, event_type) VALUES "
        "(gen_random_uuid(), 'a', '1', 't')");
  }

  std::uint64_t ClockMs() const {
    return std::stoull(Sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"));
  }

  Lsn Now() const { return *Lsn::Parse(Sql("SELECT pg_current_wal_lsn()")); }

  walpost::testing::MockKafka mock_;
};

// So that an edit before the first `run` is noticed.
TEST_F(SlotMoveTest, InitRemembersWhereTheSlotBeginsOnce) {
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = Init(Remembering());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output, HasSubstr("progress     topic progress exists\n"));
    const auto records = Remembered();
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(records[0].epoch, 0U);
    EXPECT_EQ(records[0].end_lsn, Confirmed());
    EXPECT_EQ(std::to_string(records[0].publication_oid), Sql("SELECT oid FROM pg_publication"));
  }
}

TEST_F(SlotMoveTest, InitRejectsATopicOfSeveralPartitionsBeforeTheSlotIsMade) {
  mock_.CreateTopic("wide", 3);
  InitOptions options = Remembering();
  options.progress_topic = "wide";
  const Outcome outcome = Init(options);
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("has 3 partitions and must have 1"));
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_replication_slots"), "0");
}

TEST_F(SlotMoveTest, WithoutYesBothOnlySayWhatIsLeftOut) {
  InitRemembering();
  Insert();
  const std::string before = State();
  for (const Outcome& outcome :
       {SlotAdvance(Remembering(), "", false), SlotAdvance(Remembering(), Now().ToString(), false),
        SlotRecreate(LeavingGap(Remembering()), false)}) {
    EXPECT_EQ(outcome.exit_code, 64) << outcome.error;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("is confirmed up to " + Confirmed().ToString()),
                                      HasSubstr("progress is remembered"), HasSubstr("not sent")));
    EXPECT_THAT(outcome.error, HasSubstr("--yes"));
  }
  EXPECT_EQ(State(), before);
  EXPECT_TRUE(Decided().empty());
}

TEST_F(SlotMoveTest, AdvanceTakesTheSlotAsItIs) {
  InitRemembering();
  const std::uint64_t begun_ms = ClockMs();
  const Outcome outcome = SlotAdvance(Remembering(), "", true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  const auto records = Decided();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_GE(records[0].epoch, begun_ms);
  EXPECT_LE(records[0].epoch, ClockMs());
  EXPECT_EQ(records[0].end_lsn, Confirmed());
  EXPECT_EQ(records[0].timeline, 1U);
  EXPECT_EQ(std::to_string(records[0].system_identifier),
            Sql("SELECT system_identifier FROM pg_control_system()"));
  EXPECT_EQ(std::to_string(records[0].publication_oid), Sql("SELECT oid FROM pg_publication"));
  ASSERT_EQ(records[0].tables.size(), 1U);
  EXPECT_EQ(std::to_string(records[0].tables[0].oid), Sql("SELECT 'outbox.events'::regclass::oid"));
}

TEST_F(SlotMoveTest, EachDecisionIsOfANewerEpochAlsoForALowerPosition) {
  InitRemembering();
  Progress high;
  high.epoch = std::uint64_t{1} << 50;
  high.system_identifier = 7;
  high.end_lsn = Lsn(0xffff'ffff'0000);
  ASSERT_TRUE(kafka::WriteProgress(Remembering().kafka, {"progress", "shop"}, high,
                                   std::chrono::milliseconds(10'000))
                  .ok());
  const Outcome outcome = SlotAdvance(Remembering(), "", true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output, HasSubstr("remembered on cluster 7"));
  const auto records = Decided();
  ASSERT_EQ(records.size(), 1U) << "only that of the newest epoch counts";
  EXPECT_EQ(records[0].epoch, high.epoch + 1);
  EXPECT_EQ(records[0].end_lsn, Confirmed());
}

TEST_F(SlotMoveTest, AdvanceToPassesTheTransactionThatCommittedThere) {
  InitRemembering();
  Insert();
  // Of the Begin message.
  const Lsn commit(std::stoull(
      Sql("WITH peeked AS (SELECT * FROM pg_logical_slot_peek_binary_changes('shop', NULL, NULL, "
          "'proto_version', '1', 'publication_names', 'shop')) "
          "SELECT encode(substring(data FROM 2 FOR 8), 'hex') FROM peeked "
          "WHERE get_byte(data, 0) = 66 AND xid IN "  // of no empty one, which 14 and older send
          "(SELECT xid FROM peeked WHERE get_byte(data, 0) = 73)"),
      nullptr, 16));
  Insert();
  const Outcome outcome = SlotAdvance(Remembering(), commit.ToString(), true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_GT(Confirmed(), commit);
  EXPECT_EQ(Sql("SELECT count(*) FROM pg_logical_slot_peek_binary_changes('shop', NULL, NULL, "
                "'proto_version', '1', 'publication_names', 'shop') WHERE get_byte(data, 0) = 73"),
            "1")
      << "the second is left";
  ASSERT_EQ(Decided().size(), 1U);
  EXPECT_EQ(Decided()[0].end_lsn, Confirmed());
}

TEST_F(SlotMoveTest, AdvanceToWhatIsNoPlaceAheadIsRejected) {
  InitRemembering();
  const std::string before = State();
  for (const char* to : {"0/1", "here", "FFFF/0"}) {
    const Outcome outcome = SlotAdvance(Remembering(), to, true);
    EXPECT_EQ(outcome.exit_code, 78) << to << outcome.output;
    EXPECT_TRUE(Decided().empty()) << to;
  }
  EXPECT_EQ(SlotAdvance(Remembering(), "0/1", true).exit_code, 78);
}

// Failure 23.
TEST_F(SlotMoveTest, AdvanceOfAClusterThatIsNotTheRecordedOneTakesIt) {
  InitRemembering();
  Sql("UPDATE walpost.pipeline SET system_identifier = 7");
  const Outcome outcome = SlotAdvance(Remembering(), "", true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Sql("SELECT p.system_identifier = c.system_identifier FROM walpost.pipeline p, "
                "pg_control_system() c"),
            "t");
}

TEST_F(SlotMoveTest, AdvanceWithoutASlotIsRejected) {
  InitRemembering();
  Sql("SELECT pg_drop_replication_slot('shop')");
  const Outcome outcome = SlotAdvance(Remembering(), "", true);
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("does not exist"));
  EXPECT_TRUE(Decided().empty());
}

TEST_F(SlotMoveTest, RecreateMakesTheSlotAndItsRecordAnew) {
  InitRemembering();
  const Lsn before = Confirmed();
  Insert();
  const Outcome outcome = SlotRecreate(LeavingGap(Remembering()), true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("not sent"), HasSubstr("shop dropped"), HasSubstr("created at")));
  EXPECT_GT(Confirmed(), before);
  EXPECT_EQ(Sql("SELECT consistent_point FROM walpost.pipeline"), Confirmed().ToString());
  ASSERT_EQ(Decided().size(), 1U);
  EXPECT_EQ(Decided()[0].end_lsn, Confirmed());
}

TEST_F(SlotMoveTest, DecisionIsNotedInTheDatabaseAsWell) {
  InitRemembering();
  const auto noted = [this] { return Sql("SELECT delivered_lsn FROM walpost.pipeline"); };
  EXPECT_EQ(noted(), Confirmed().ToString());
  Insert();
  ASSERT_EQ(SlotAdvance(Remembering(), Now().ToString(), true).exit_code, 0);
  EXPECT_EQ(noted(), Confirmed().ToString());
  Sql("UPDATE walpost.pipeline SET system_identifier = 7, delivered_lsn = 'FFFF/0'");
  ASSERT_EQ(SlotAdvance(Remembering(), "", true).exit_code, 0);
  EXPECT_EQ(noted(), Confirmed().ToString());
  Sql("UPDATE walpost.pipeline SET delivered_lsn = NULL");
  ASSERT_EQ(SlotRecreate(LeavingGap(Remembering()), true).exit_code, 0);
  EXPECT_EQ(noted(), Confirmed().ToString());
}

TEST_F(SlotMoveTest, RecreateSaysWhatItGoesByAndDoesNotTrustAnotherHistory) {
  InitRemembering();
  ASSERT_EQ(SlotAdvance(Remembering(), "", true).exit_code, 0);
  RecreateOptions options;
  options.init = Remembering();
  const auto said = [&] { return SlotRecreate(options, false).output; };
  const std::string there = Decided().at(0).end_lsn.ToString();
  EXPECT_THAT(said(),
              AllOf(HasSubstr("of those committed after " + there + ", or not surely before"),
                    Not(HasSubstr("the database itself"))));
  Sql("UPDATE walpost.pipeline SET delivered_lsn = '0/1000'");
  EXPECT_THAT(said(), HasSubstr("what the database itself knows to be delivered ends at 0/1000"));
  Sql("UPDATE walpost.pipeline SET delivered_lsn = NULL");
  EXPECT_THAT(said(), HasSubstr("but the database has not noted how far was delivered"));
  for (const auto& [timeline, position] : {std::pair(1U, Lsn(0xffff'0000'0000)), {9U, Lsn(1)}}) {
    Progress other = Decided().back();
    ++other.epoch;
    other.timeline = timeline;
    other.end_lsn = position;
    ASSERT_TRUE(kafka::WriteProgress(Remembering().kafka, {"progress", "shop"}, other,
                                     std::chrono::milliseconds(10'000))
                    .ok());
    EXPECT_THAT(said(), AllOf(HasSubstr("history does not have that position"),
                              HasSubstr("of all: how far Kafka had them is not known")));
  }
}

TEST_F(SlotMoveTest, RecreateMakesWhatIsMissing) {
  InitRemembering();
  Sql("SELECT pg_drop_replication_slot('shop')");
  Sql("DROP PUBLICATION shop");
  const Outcome outcome = SlotRecreate(LeavingGap(Remembering()), true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_TRUE(Confirmed().valid());
  ASSERT_EQ(Decided().size(), 1U);
  EXPECT_EQ(std::to_string(Decided()[0].publication_oid), Sql("SELECT oid FROM pg_publication"));
}

// From then on outbox.maintain believes that everything before the new slot is delivered.
TEST_F(SlotMoveTest, GapThatIsLeftIsNotedBeforeTheNewSlotIsRecordedAlsoWhereTheTableWasMissing) {
  InitOk();
  Sql("DROP TABLE walpost.dead_letters");
  Sql("CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NOT EXISTS (SELECT "
      "FROM walpost.dead_letters WHERE reason = 'transactions_skipped') THEN RAISE 'not noted'; "
      "END "
      "IF; RETURN NEW; END $$; CREATE TRIGGER noted BEFORE INSERT OR UPDATE ON walpost.pipeline "
      "FOR EACH ROW EXECUTE FUNCTION noted()");
  const Outcome outcome = SlotRecreate(LeavingGap(Options()), true);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(Sql("SELECT count(*) FROM walpost.dead_letters WHERE closed_at IS NULL"), "1");
}

TEST_F(SlotMoveTest, KafkaThatIsAwayChangesNothing) {
  InitRemembering();
  mock_.SetDown(true);
  InitOptions options = Remembering();
  options.kafka_timeout = std::chrono::milliseconds(500);
  const std::string before = State();
  EXPECT_EQ(SlotAdvance(options, Now().ToString(), true).exit_code, 69);
  EXPECT_EQ(SlotRecreate(LeavingGap(options), true).exit_code, 69);
  EXPECT_EQ(State(), before);
}

TEST_F(SlotMoveTest, SlotThatIsReadIsLeftAlone) {
  InitRemembering();
  auto connected = postgres::Connect(Options().source, Lsn());
  ASSERT_TRUE(std::holds_alternative<postgres::Connected>(connected));
  for (const Outcome& outcome :
       {SlotAdvance(Remembering(), "", true), SlotRecreate(LeavingGap(Remembering()), true)}) {
    EXPECT_EQ(outcome.exit_code, 78);
    EXPECT_THAT(outcome.error, HasSubstr("in use"));
  }
  EXPECT_TRUE(Decided().empty());
  std::get<postgres::Connected>(connected).stream.reset();
  AwaitFreeSlots();
}

TEST_F(SlotMoveTest, WithoutAProgressTopicKafkaIsNotAsked) {
  InitOk();
  EXPECT_EQ(SlotAdvance(Options(), "", true).exit_code, 0);
  EXPECT_EQ(SlotRecreate(LeavingGap(Options()), true).exit_code, 0);
  EXPECT_THAT(SlotAdvance(Options(), "", false).output, HasSubstr("progress is not remembered"));
}

// Identifiers of clusters say nothing about their order, and a cluster may be used again.
TEST_F(SlotMoveTest, DeadLettersOfSeveralClustersStandInTheOrderInWhichTheseWereUsed) {
  InitOk();
  auto connection = postgres::SqlConnection::Connect(Conninfo(), "test");
  ASSERT_TRUE(connection.ok()) << connection.status();
  const std::string here = Sql("SELECT system_identifier FROM pg_control_system()");
  const auto park = [this](const std::string& cluster, const std::string& event) {
    Sql("INSERT INTO walpost.dead_letters (pipeline, position, event_id, event_type, source, "
        "topic, event_time_ms, key, header_names, header_values, value_schema, reason, detail, "
        "attempts, parked) SELECT 'shop', lpad(to_hex(" +
        cluster + "), 16, '0') || '-00000001-0000000000000001-00000000', '" + event +
        "', '', '', '', 0, 'k', '{}', '{}', '', '', '', 1, true");
  };
  const auto move_from = [&](const std::string& cluster) {
    Sql("UPDATE walpost.dead_letters SET system_identifier = " + cluster);
    PipelineRecord record;
    record.name = "shop";
    record.system_identifier = cluster;
    EXPECT_TRUE(TakeOverDeadLetters(&*connection, record).ok());
  };
  park("8000000000000000000", "e1");
  move_from("8000000000000000000");
  park(here, "e2");
  move_from("5");
  park("5", "e3");
  move_from("5");
  park(here, "e4");
  auto table = postgres::DeadLetterTable::Open(Conninfo(), "test", "shop", {});
  ASSERT_TRUE(table.ok()) << table.status();
  std::string order;
  for (const auto& row : *table->ReadKey("", "k", "z", 100)) {
    order += row.event_id;
  }
  EXPECT_EQ(order, "e1e2e3e4");
}

}  // namespace
}  // namespace walpost::operations
