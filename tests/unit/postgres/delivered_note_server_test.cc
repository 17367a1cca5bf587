// What a connect notes in walpost.pipeline of how far was delivered, and what keeps it from that.
#include "postgres/preflight.h"

#include "unit/postgres/preflight_fixture.h"

namespace walpost::postgres {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeliveredNoteTest : public PreflightServerTest {
 protected:
  void SetUp() override {
    PreflightServerTest::SetUp();
    MakeAll();
    Sql("CREATE SCHEMA walpost; CREATE TABLE walpost.pipeline (name text PRIMARY KEY, slot text, "
        "system_identifier numeric, consistent_point pg_lsn, backfilled boolean, prefixes text[], "
        "created_at timestamptz DEFAULT now(), delivered_lsn pg_lsn)");
    Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier) SELECT 'o''brien', '" +
        slot_ + "', system_identifier FROM pg_control_system()");
  }

  std::string SlotsPosition() {
    return Sql("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '" + slot_ +
               "'");
  }

  std::string Noted() { return Sql("SELECT delivered_lsn FROM walpost.pipeline"); }

  // Connects, and ends it; what the connect says of the note.
  std::string NotedBy(const ConnectOptions& options, const Guard& guard = nullptr) {
    std::string said;
    {
      auto outcome = Connect(options, base::Lsn(), guard);
      if (const auto* end = std::get_if<StreamEnd>(&outcome)) {
        ADD_FAILURE() << end->status;
        return "";
      }
      said = std::get<Connected>(outcome).delivered_not_noted;
    }
    WaitUntilFree();
    return said;
  }

  static Guard Remembering(base::Lsn position) {
    return [position](base::SourceFacts* facts) {
      facts->progress = facts->ProgressAt(position);
      return std::nullopt;
    };
  }
};

TEST_F(DeliveredNoteTest, SlotsPositionWhereNothingIsRemembered) {
  EXPECT_EQ(NotedBy(Options()), "");
  EXPECT_EQ(Noted(), SlotsPosition());
}

// someone else moves the slot alone.
TEST_F(DeliveredNoteTest, WhatIsRememberedWhereTheSlotIsAhead) {
  EXPECT_EQ(NotedBy(Options(), Remembering(base::Lsn(0x1000))), "");
  EXPECT_EQ(Noted(), "0/1000");
}

// A server that is set back takes its slot along.
TEST_F(DeliveredNoteTest, SlotsPositionWhereWhatIsRememberedIsAhead) {
  EXPECT_EQ(NotedBy(Options(), Remembering(base::Lsn(0xffff'0000'0000))), "");
  EXPECT_EQ(Noted(), SlotsPosition());
}

TEST_F(DeliveredNoteTest, NothingIsWrittenWhereItIsNotedAlreadyOrTheGuardRejects) {
  EXPECT_EQ(NotedBy(Options()), "");
  const std::string row = Sql("SELECT xmin || ' ' || p::text FROM walpost.pipeline p");
  EXPECT_EQ(NotedBy(Options()), "");
  auto rejected = Connect(Options(), base::Lsn(), [](base::SourceFacts* facts) {
    facts->progress = facts->ProgressAt(base::Lsn(0x1000));
    return StreamEnd();
  });
  EXPECT_TRUE(std::holds_alternative<StreamEnd>(rejected));
  EXPECT_EQ(Sql("SELECT xmin || ' ' || p::text FROM walpost.pipeline p"), row);
}

TEST_F(DeliveredNoteTest, StandbyIsNotWrittenTo) {
  const Deadline soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  auto opened = Connection::Open({server_->Conninfo(database_), "walpost", true});
  ASSERT_TRUE(std::holds_alternative<Connection>(opened));
  Connection& connection = std::get<Connection>(opened);
  PreflightReport report = RunPreflight(&connection, Options(), PreflightMode::kStopAtFirst, soon);
  report.facts.in_recovery = true;
  EXPECT_EQ(NoteDelivered(&connection, report, soon), "");
  EXPECT_EQ(Noted(), "");
  report.facts.in_recovery = false;
  EXPECT_EQ(NoteDelivered(&connection, report, soon), "");
  EXPECT_EQ(Noted(), SlotsPosition());
}

TEST_F(DeliveredNoteTest, RowThatIsLockedIsNotWaitedForLongAndSaysSo) {
  auto other = Connection::Open({server_->Conninfo(database_), "another", false});
  ASSERT_TRUE(std::holds_alternative<Connection>(other));
  const Deadline soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Connection& holder = std::get<Connection>(other);
  ASSERT_TRUE(holder.Query("BEGIN", soon).ok());
  ASSERT_TRUE(holder.Query("SELECT FROM walpost.pipeline FOR UPDATE", soon).ok());
  EXPECT_THAT(NotedBy(Options()),
              AllOf(HasSubstr("lock timeout"), HasSubstr("outbox.maintain drops no row")));
  EXPECT_EQ(Noted(), "");
}

TEST_F(DeliveredNoteTest, WithoutTheRightNothingIsWrittenOrSaid) {
  server_->Sql(
      "DO $$BEGIN IF to_regrole('reader') IS NULL THEN CREATE ROLE reader LOGIN REPLICATION; END "
      "IF; END$$");
  Sql("GRANT USAGE ON SCHEMA walpost TO reader; GRANT SELECT ON walpost.pipeline TO reader");
  ConnectOptions reader = Options();
  reader.conninfo = server_->Conninfo(database_, "user=reader");
  EXPECT_EQ(NotedBy(reader), "");
  EXPECT_EQ(Noted(), "");
  Sql("GRANT UPDATE (delivered_lsn) ON walpost.pipeline TO reader");
  EXPECT_EQ(NotedBy(reader), "");
  EXPECT_EQ(Noted(), SlotsPosition());
}

}  // namespace
}  // namespace walpost::postgres
