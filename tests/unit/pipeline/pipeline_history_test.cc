// Which history a server has, and who may publish: after a server was set back, and after another
// instance went on.
#include "history_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using base::StreamEnd;
using delivery::Sequence;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class HistoryTest : public HistoryFixture {
 protected:
  std::vector<std::uint64_t> Submitted() {
    std::vector<std::uint64_t> events;
    for (const Sequence sequence : sink_.outstanding()) {
      if (sequence < DeadLetters::kFirstSequence) {
        events.push_back(sequence);
      }
    }
    return events;
  }
};

TEST_F(HistoryTest, LastTransactionIsRememberedWithThePosition) {
  Connect();
  Transaction(100, {"a1"});
  Transaction(200, {});
  Keepalive(500);
  SendPayload(Begin(600));
  Event("a2");
  for (int i = 0; i < 3; ++i) {
    DeliverAll();
    sink_.DeliverAll();
    Advance(ProgressKeeper::kEvery);
  }
  ASSERT_TRUE(Written());
  EXPECT_EQ(Written()->end_lsn, Lsn(500));
  EXPECT_THAT(Written()->last_transactions,
              ElementsAre(base::CommittedTransaction{Lsn(100), base::Xid{77}, kCommitTime}));
}

TEST_F(HistoryTest, RememberedTransactionComesAgainAndIsDropped) {
  Remembered();
  Connect();
  Transaction(100, {"a1", "a2"});
  sink_.DeliverAll();
  Tick();
  EXPECT_EQ(Confirmed(), Lsn(108));
  Transaction(200, {});
  Keepalive(600);
  Transaction(700, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a3"));
  EXPECT_EQ(pipeline().counters().events_repeated, 2U);
}

TEST_F(HistoryTest, AnotherTransactionInPlaceOfTheRememberedOneHaltsBeforeItsFirstEvent) {
  Remembered();
  Connect();
  SendPayload(Begin(100, /*xid=*/78));
  ExpectOtherHistory("transaction 77, committed at 0/64");
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_EQ(confirmed_, Lsn());
}

TEST_F(HistoryTest, ServerThatComesPastTheRememberedOneWithoutItHalts) {
  Remembered();
  Connect();
  Keepalive(600);
  ExpectOtherHistory("it comes to 0/258 without it");
  EXPECT_EQ(confirmed_, Lsn());
}

// The slot is behind the remembered transaction, and what the server skips until then may hold
// events of another history.
TEST_F(HistoryTest, PositionBeforeTheRememberedOneHasComeAgainIsNotConfirmed) {
  Remembered();
  facts_.confirmed_flush_lsn = Lsn(50);
  Connect();
  Keepalive(90, /*reply_requested=*/true);
  sink_.DeliverAll();
  Tick();
  EXPECT_EQ(Confirmed(), Lsn());
  SendPayload(Begin(100));
  Keepalive(100, /*reply_requested=*/true);
  EXPECT_EQ(Confirmed(), Lsn(100));
}

// The slot stands behind it already, so it does not come again; but everything up to 500 was read.
TEST_F(HistoryTest, EventWhereThereWasNoneHalts) {
  Remembered();
  facts_.start_lsn = Lsn(300);
  Connect();
  SendPayload(Begin(400));
  SendPayload(EventBytes("a1", "a"));
  ExpectOtherHistory("everything up to 0/1F4 was read");
  EXPECT_THAT(Visible('a'), IsEmpty());
}

// Storage that failed over, a snapshot: another history within the life of one process.
TEST_F(HistoryTest, ServerThatComesBackShorterHalts) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  facts_.server_wal_lsn = Lsn(107);
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  ExpectOtherHistory("read up to 0/6C, but now its log ends at 0/6B");
  EXPECT_THAT(Visible('a'), IsEmpty()) << "what was in flight is of the history that is gone";
}

TEST_F(HistoryTest, ServerThatCameBackShorterAndWentOnHalts) {
  Connect();
  Transaction(100, {"a1"});
  Transaction(200, {"a2"});
  End(StreamEnd::Kind::kLost);
  facts_.server_wal_lsn = Lsn(900);
  facts_.start_lsn = Lsn(10);
  Connect(/*start=*/Lsn(100));
  Transaction(100, {"a1"});
  SendPayload(Begin(190, 78));
  SendPayload(EventBytes("b1", "b"));
  ExpectOtherHistory("an event there that it did not have");
  EXPECT_THAT(Visible('b'), IsEmpty());
}

TEST_F(HistoryTest, StandbyMayBeBehind) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  facts_.server_wal_lsn = Lsn(50);
  facts_.in_recovery = true;
  facts_.looked_lsn = Lsn(150);
  Connect(/*start=*/Lsn(100));
  Transaction(100, {"a1"});
  EXPECT_TRUE(pipeline().connected());
}

TEST_F(HistoryTest, TimelineOfTheSameNumberThatBeganElsewhereHalts) {
  Connect();
  End(StreamEnd::Kind::kLost);
  facts_.timeline_history = {{1, Lsn(10)}, {2, Lsn(19)}};
  Connect(/*start=*/Lsn(), /*announce=*/false);
  ExpectHalted(HaltReason::kTimelineChanged, "timeline 2 ended at 0/14 in the history");
}

TEST_F(HistoryTest, NothingIsConfirmedThatThisConnectionHasNotPassed) {
  options_.progress_topic = "";
  Connect();
  Transaction(100, {"a1"});
  DeliverAll();
  Keepalive(500);
  EXPECT_EQ(Confirmed(), Lsn(500));
  End(StreamEnd::Kind::kLost);
  facts_.start_lsn = Lsn(400);
  Connect(/*start=*/Lsn(100));
  Advance(StatusClock::kIntervalMax);
  auto status = TakeStatus();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->flush, Lsn());
  Keepalive(450, /*reply_requested=*/true);
  status = TakeStatus();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->flush, Lsn(450));
}

// A crash of the server, before this process has taken anything: repeats of the process before it.
TEST_F(HistoryTest, SlotThatFellBackBehindTheBeginBringsRepeatsWhereNothingIsRemembered) {
  options_.progress_topic = "";
  facts_.confirmed_flush_lsn = facts_.start_lsn = Lsn(500);
  Connect();
  Keepalive(600);
  EXPECT_EQ(Confirmed(), Lsn(600));
  End(StreamEnd::Kind::kLost);
  facts_.confirmed_flush_lsn = facts_.start_lsn = Lsn(90);
  Connect();
  Transaction(100, {"a1"});
  EXPECT_TRUE(pipeline().connected());
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// --- Another instance ---

TEST_F(HistoryTest, WithoutAStreamItPublishesForTheServersTimeoutOnly) {
  Connect();
  Transaction(100, {"a1"});
  Advance(milliseconds(1));
  EXPECT_THAT(Submitted(), ElementsAre(0U));
  End(StreamEnd::Kind::kLost);
  Advance(milliseconds(5'999));
  EXPECT_FALSE(sink_.closed());
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + milliseconds(1));
  Advance(milliseconds(1));
  Advance(milliseconds(1));
  EXPECT_TRUE(sink_.closed());
  EXPECT_EQ(pipeline().tracker().in_flight_events(), 1U);
  // It was nobody else: the same is sent once the server has shown that it is the same.
  facts_.progress = pipeline().remembered_progress();
  Connect(/*start=*/Lsn(100));
  EXPECT_TRUE(sink_.closed());
  Transaction(100, {"a1"});
  EXPECT_FALSE(sink_.closed());
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// The server may have given up the connection without a word that arrives.
TEST_F(HistoryTest, SilentStreamCountsAsNoneUntilTheServerSpeaksAgain) {
  facts_.wal_sender_timeout_ms = 0;
  Connect();
  Transaction(100, {"a1"});
  Advance(StatusClock::kSilenceShown / 2);
  ASSERT_TRUE(TakeStatus()) << "it is asked";
  Advance(StatusClock::kSilenceShown / 2);
  Advance(SourceTimers::kPublishAlone - milliseconds(1));
  EXPECT_FALSE(sink_.closed());
  Advance(milliseconds(1));
  Advance(milliseconds(1));
  EXPECT_TRUE(sink_.closed());
  Transaction(200, {"a2"});
  EXPECT_FALSE(sink_.closed());
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

TEST_F(HistoryTest, WhileAnotherHasTheSlotNothingIsPublished) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  EXPECT_FALSE(sink_.closed());
  Advance(kBackOff);
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(StreamEnd::Kind::kSlotInUse, "slot is active for PID 7");
  Advance(milliseconds(1));
  EXPECT_TRUE(sink_.closed());
  // It was a connection of our own that the server had not given up.
  facts_.progress = pipeline().remembered_progress();
  Connect(/*start=*/Lsn(100));
  Transaction(100, {"a1"});
  EXPECT_FALSE(sink_.closed());
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

TEST_F(HistoryTest, SlotThatWasInUseBeforeTheStartIsForgotten) {
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(StreamEnd::Kind::kSlotInUse, "slot is active for PID 7");
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  Advance(milliseconds(5'999));
  EXPECT_FALSE(sink_.closed());
}

TEST_F(HistoryTest, WithoutATimeoutOfTheServerItPublishesForAMinute) {
  facts_.wal_sender_timeout_ms = 0;
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  Advance(SourceTimers::kPublishAlone - milliseconds(1));
  EXPECT_FALSE(sink_.closed());
  Advance(milliseconds(1));
  Advance(milliseconds(1));
  EXPECT_TRUE(sink_.closed());
}

// 1 2 3 4 5 stays 1 2 3 4 5.
TEST_F(HistoryTest, WhatAnotherInstanceDeliveredIsNotSentAgain) {
  Connect();
  Tick();
  sink_.DeliverAll();
  Advance(ProgressKeeper::kEvery);
  Transaction(100, {"a1"});
  DeliverAll();
  Advance(ProgressKeeper::kEvery);
  sink_.DeliverAll();
  Tick();
  ASSERT_EQ(pipeline().remembered_progress()->end_lsn, Lsn(108));
  Transaction(200, {"a2"});
  Transaction(300, {"a3"});
  End(StreamEnd::Kind::kLost);
  // It delivers 2, 3, 4 and 5.
  base::Progress others = *pipeline().remembered_progress();
  others.end_lsn = Lsn(508);
  others.last_transactions = {{Lsn(500), base::Xid{77}, kCommitTime}};
  facts_.progress = others;
  facts_.confirmed_flush_lsn = facts_.start_lsn = Lsn(508);
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  EXPECT_EQ(
      pipeline().counters().reconnects_by_reason[static_cast<int>(ReconnectReason::kTakenOver)],
      1U);
  Advance(milliseconds(1));
  EXPECT_EQ(pipeline().counters().events_discarded, 2U);
  EXPECT_FALSE(pipeline().known_progress()) << "as a new process";
  Connect();
  Transaction(600, {"a6"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a6"));
  ExpectAccounted();
}

// What another instance has passed is no poison.
TEST_F(HistoryTest, ErrorsFromBeforeAnotherInstanceTookOverDoNotCount) {
  options_.progress_topic = "";
  for (int i = 1; i < ServerErrors::kSameErrorMax; ++i) {
    Connect(i == 1 ? Lsn() : Lsn(100), /*announce=*/i == 1);
    if (i == 1) {
      Transaction(100, {"a1"});
    }
    Fail("22012", "associated LSN 0/64");
  }
  facts_.confirmed_flush_lsn = facts_.start_lsn = Lsn(508);
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  Advance(milliseconds(1));
  Connect();
  Fail("22012", "associated LSN 0/64");
  EXPECT_FALSE(pipeline().halt());
}

TEST_F(HistoryTest, WhatAnotherInstanceConfirmedIsNotSentAgainWhereNothingIsRemembered) {
  options_.progress_topic = "";
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  facts_.confirmed_flush_lsn = facts_.start_lsn = Lsn(108);
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  Advance(milliseconds(1));
  EXPECT_EQ(pipeline().counters().events_discarded, 1U);
  Connect();
  EXPECT_THAT(Submitted(), IsEmpty());
}

// --- SIGHUP ---

TEST_F(HistoryTest, SighupDuringAHaltIsRemembered) {
  Connect();
  Transaction(100, {"a1"});
  SendPayload("?");
  EXPECT_FALSE(pipeline().halted());
  pipeline().Resume(now_);
  DeliverAll();
  for (int i = 0; i < 10 && pipeline().halt(); ++i) {
    sink_.DeliverAll();
    Advance(ProgressKeeper::kEvery);
  }
  EXPECT_FALSE(pipeline().halt());
  Connect();
}

// The producer may be closed already: then the halt ends in one turn, and resuming forgets what was
// delivered.
TEST_F(HistoryTest, SighupDuringAHaltTakesNothingFromTheLastStatus) {
  options_.progress_topic = "";
  Connect();
  Transaction(100, {"a1"});
  DeliverAll();
  const Lsn confirmed = Confirmed();
  ASSERT_EQ(confirmed, Lsn(108));
  Transaction(200, {"a2"});
  SendPayload("?");
  pipeline().Resume(now_);
  sink_.DeliverAll();
  while (pipeline().halt()) {
    sink_.DeliverAll();
    now_.mono += ProgressKeeper::kEvery;
    pipeline().Tick(now_);
  }
  EXPECT_FALSE(pipeline().TakeConnect(now_)) << "the last stream ends first";
  EXPECT_EQ(pipeline().TakeStreamCommand(), StreamCommand::kFinish);
  EXPECT_GE(pipeline().FinalStatus(now_).flush, confirmed);
  EXPECT_TRUE(pipeline().TakeConnect(now_));
}

// Otherwise the answer to the first attempt, whose guard knew other progress, passes for the
// second's.
TEST_F(HistoryTest, SighupAfterAHaltWaitsForTheAnswerToTheAttemptBeforeIt) {
  for (const bool attempt_succeeds : {false, true}) {
    Connect();
    Transaction(100, {"a1"});
    End(StreamEnd::Kind::kLost);
    Advance(kBackOff);
    ASSERT_TRUE(pipeline().TakeConnect(now_));
    for (int i = 0; i < 10 && !pipeline().halt(); ++i) {
      for (const delivery::Sequence sequence : sink_.outstanding()) {
        sink_.Fail(sequence, delivery::FailureKind::kRecordTooLarge);
      }
      Tick();
    }
    ExpectHalted(base::HaltReason::kUndeliverableEvent, "");
    pipeline().Resume(now_);
    Tick();
    EXPECT_FALSE(pipeline().TakeConnect(now_));
    EXPECT_GT(pipeline().NextDeadline(), now_.mono) << "the loop would spin";
    if (attempt_succeeds) {
      pipeline().OnConnected(facts_, now_);
      EXPECT_FALSE(pipeline().connected()) << "it began where the halt had left the slot";
      Tick();
    } else {
      End(StreamEnd::Kind::kLost);
    }
  }
  Connect();
}

}  // namespace
}  // namespace walpost::pipeline
