// Tables that become outboxes of a pipeline that has run before: which of their rows are events.
#include <chrono>
#include <string>

#include "history_fixture.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using base::StreamEnd;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AdoptionTest : public HistoryFixture {
 protected:
  // Timeline 2 begins at `switched_at`. A row of a transaction that the server of before showed
  // open at `lsn`, or that another one gave the same id, commits at 600.
  void OpenedBefore(Lsn lsn, Lsn switched_at = Lsn(550), std::uint32_t opened_on = 1) {
    Remembered();
    facts_.progress->tables = facts_.tables;
    facts_.progress->tables[0].first_xid = {base::FullXid{1'000}, opened_on, lsn};
    facts_.timeline = 2;
    facts_.timeline_history = {{1, switched_at}};
    facts_.start_lsn = Lsn(500);
    facts_.next_xid = base::FullXid{2'000};
    lsn > switched_at&& opened_on == 1 ? ConnectAndAdopt() : Connect();
    SendPayload(Begin(600, 950));
    Event("a1");
    SendPayload(Commit(600));
    DeliverAll();
  }

  // With a transaction that is open.
  void AdoptFrom(base::FullXid next_xid) {
    facts_.next_xid = next_xid;
    facts_.adoption.first_xid = {next_xid, facts_.timeline, facts_.adoption.since.lsn};
  }

  // Also where one of the connection before is still on its way.
  void DeliverProgress() {
    for (int i = 0; i < 2; ++i) {
      sink_.DeliverAll();
      Tick();
    }
  }

  // With something that is not remembered yet.
  void ConnectAndAdopt(Lsn start = Lsn()) {
    Connect(start, /*announce=*/false);
    EXPECT_FALSE(pipeline().want_frame()) << "it would be adopted later by whoever comes next";
    DeliverProgress();
    SendPayload(walpost::testing::RelationBytes(EventsRelation()));
  }

  // With an id that tells what is older, and on a second connection.
  void PassAnOldTransaction() {
    Remembered();
    facts_.progress->tables = {{1, "other", "table"}};
    AdoptFrom(base::FullXid{1'000});
    facts_.start_lsn = Lsn(500);
    ConnectAndAdopt();
    SendFrame(
        walpost::testing::KeepaliveFrame(Lsn(900), false, kCommitTime + std::chrono::seconds(1)));
    Advance(ProgressKeeper::kEvery);
    sink_.DeliverAll();
    Tick();
    ASSERT_EQ(Written()->end_lsn, Lsn(900));
    End(StreamEnd::Kind::kLost);
    facts_.progress = Written();
    Connect(/*start=*/Lsn(100));
  }
};

TEST_F(AdoptionTest, RowOfATableThatWasNoOutboxThenIsPassedOver) {
  Remembered();
  facts_.progress->tables = {{1, "other", "table"}};
  facts_.adoption.since = {Lsn(500), kCommitTime};
  facts_.start_lsn = Lsn(300);
  ConnectAndAdopt();
  Transaction(400, {"a1"});
  Transaction(600, {"a2"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a2"));
  EXPECT_EQ(pipeline().counters().changes_ignored, 1U);
}

// Nothing was open then, so no ids are needed: another history may have the same ones.
TEST_F(AdoptionTest, TableIsAnOutboxFromTheEndOfTheLogAndTheTimeOnWhereItWasAdopted) {
  Remembered();
  facts_.progress->tables = {{1, "other", "table"}};
  facts_.adoption.since = {Lsn(700), kCommitTime};
  facts_.next_xid = base::FullXid{1'000};
  facts_.start_lsn = Lsn(500);
  ConnectAndAdopt();
  Transaction(600, {"a1"});
  Transaction(700, {"a2"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a2"));
}

TEST_F(AdoptionTest, RowThatAServerThatWasSetBackWritesWhereATableWasNoOutboxIsAnEvent) {
  Remembered();
  facts_.progress->tables = facts_.tables;
  facts_.progress->tables[0].since = {Lsn(700), kCommitTime - std::chrono::microseconds(1)};
  facts_.start_lsn = Lsn(500);
  Connect();
  Transaction(600, {"a1"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// It was not there yet when the table became an outbox.
TEST_F(AdoptionTest, RowThatCommittedAfterItsTableBecameAnOutboxAndStandsBeforeHalts) {
  Remembered();
  facts_.progress->tables = {{1, "other", "table"}};
  facts_.adoption.since = {Lsn(500), kCommitTime - std::chrono::microseconds(1)};
  AdoptFrom(base::FullXid{1'000});  // a server that was set back gives old ids again
  facts_.start_lsn = Lsn(300);
  ConnectAndAdopt();
  SendPayload(Begin(400));
  SendPayload(EventBytes("a1", "a"));
  ExpectOtherHistory("everything up to 0/1F4 was read");
}

// PostgreSQL sends some, all or none of their rows, by what it decoded before on the same
// connection.
TEST_F(AdoptionTest, TransactionThatBeganBeforeItsTableWasAnOutboxHoldsNoEventOfIt) {
  Remembered();
  facts_.progress->tables = {{1, "other", "table"}};
  AdoptFrom(base::FullXid{(std::uint64_t{7} << 32U) + 3});
  facts_.start_lsn = Lsn(500);
  ConnectAndAdopt();
  ASSERT_TRUE(Written());
  EXPECT_EQ(Written()->tables.at(0).first_xid.xid, facts_.next_xid);
  std::uint64_t commit_lsn = 600;
  for (const std::uint32_t xid : {0xFFFF'FFFFU, 2U, 3U, 0x8000'0002U, 0xFFFF'FFFEU, 2U}) {
    SendPayload(Begin(commit_lsn, xid));
    Event("a" + std::to_string(commit_lsn));
    SendPayload(Commit(commit_lsn));
    commit_lsn += 100;
  }
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a800", "a900", "a1000", "a1100"));
}

// The stream begins at the last transaction with events. On the first connection the server had
// sent none of its rows.
TEST_F(AdoptionTest, OldTransactionThatComesWithRowsOnTheNextConnectionIsNoOtherHistory) {
  PassAnOldTransaction();
  SendPayload(Begin(600, 950));
  Event("a1");
  SendPayload(Commit(600));
  EXPECT_TRUE(pipeline().connected());
  EXPECT_EQ(pipeline().counters().changes_ignored, 1U);
}

TEST_F(AdoptionTest, OldIdThatCommitsAfterThePositionWasPassedIsOfAnotherHistory) {
  PassAnOldTransaction();
  const base::WallTime later = kCommitTime + std::chrono::seconds(2);
  SendPayload(walpost::testing::BeginBytes(Lsn(600), base::Xid{950}, later));
  SendPayload(EventBytes("a1", "a"));
  ExpectOtherHistory("everything up to 0/384 was read");
}

// It proves by what comes again that the slot is ours; without that nothing is sent any more.
TEST_F(AdoptionTest, ConnectionThatIsLostBeforeItArrivedDoesNotEndIt) {
  Remembered();
  facts_.progress->tables = {{1, "other", "table"}};
  facts_.adoption.since = {Lsn(500), kCommitTime};
  Connect(Lsn(), /*announce=*/false);
  End(StreamEnd::Kind::kLost);
  facts_.progress = pipeline().known_progress();
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  SendPayload(Begin(100));
  Advance(std::chrono::milliseconds(2 * facts_.wal_sender_timeout_ms));
  DeliverProgress();
  ASSERT_TRUE(Written());
  EXPECT_EQ(Written()->epoch, 2U);
  EXPECT_TRUE(pipeline().want_frame());
}

TEST_F(AdoptionTest, TransactionIdThatIsGivenAgainIsANewOne) {
  Remembered();
  facts_.progress->tables = facts_.tables;
  facts_.progress->tables[0].first_xid = {base::FullXid{1'000}, facts_.timeline, Lsn(500)};
  facts_.start_lsn = Lsn(500);
  facts_.next_xid = base::FullXid{900};
  ConnectAndAdopt();
  EXPECT_EQ(Written()->tables[0].first_xid, base::XidAt()) << "later nothing shows that ids repeat";
  SendPayload(Begin(600, 950));
  Event("a1");
  SendPayload(Commit(600));
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// A standby that was promoted without the end of the log gives those ids again.
TEST_F(AdoptionTest, TransactionIdIsForgottenWhereTheLogThatGaveItIsLost) {
  OpenedBefore(/*lsn=*/Lsn(551));
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// So it does with one that had written nothing by then, also where the log is there.
TEST_F(AdoptionTest, TransactionIdIsANewOneBehindASwitch) {
  OpenedBefore(/*lsn=*/Lsn(550));
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

TEST_F(AdoptionTest, TransactionIdIsKeptBeforeTheSwitch) {
  OpenedBefore(/*lsn=*/Lsn(550), /*switched_at=*/Lsn(700));
  EXPECT_THAT(Visible('a'), IsEmpty());
}

// What was not read by then may be of the timelines before.
TEST_F(AdoptionTest, TransactionIdIsKeptOnTimelinesBeforeItsOwn) {
  OpenedBefore(/*lsn=*/Lsn(800), /*switched_at=*/Lsn(700), /*opened_on=*/2);
  EXPECT_THAT(Visible('a'), IsEmpty());
}

// The second connection's look is later than the row. What counts is the first.
TEST_F(AdoptionTest, TableStaysAdoptedFromWhereItWasFirstAlsoBeforeThatIsWritten) {
  Remembered();
  facts_.progress->tables = {{1, "other", "table"}};
  facts_.adoption.since = {Lsn(500), kCommitTime - std::chrono::microseconds(1)};
  facts_.start_lsn = Lsn(300);
  Connect(Lsn(), /*announce=*/false);
  End(StreamEnd::Kind::kLost);
  ASSERT_TRUE(pipeline().known_progress());
  facts_.progress = pipeline().known_progress();
  facts_.adoption.since = {Lsn(500), kCommitTime + std::chrono::seconds(1)};
  ConnectAndAdopt(/*start=*/Lsn(100));
  SendPayload(Begin(400));
  SendPayload(EventBytes("a1", "a"));
  ExpectOtherHistory("everything up to 0/1F4 was read");
}

}  // namespace
}  // namespace walpost::pipeline
