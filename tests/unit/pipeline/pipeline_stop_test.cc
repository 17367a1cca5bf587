// SIGTERM: drain, confirm, finish.
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using base::State;
using base::StreamEnd;
using delivery::FailureKind;

class StopTest : public PipelineFixture {
 protected:
  void Stop() {
    pipeline().Stop(now_);
    Tick();
  }

  void ExpectFinished() {
    Settle();
    EXPECT_TRUE(pipeline().finished());
    EXPECT_EQ(pipeline().state(), State::kDraining);
    EXPECT_FALSE(pipeline().TakeConnect(now_));
    EXPECT_FALSE(pipeline().connected());
    EXPECT_TRUE(sink_.closed());
    ExpectAccounted();
  }
};

TEST_F(StopTest, WhatIsInFlightIsDeliveredAndConfirmedFirst) {
  Connect();
  Transaction(100, {"a1", "b1"});
  Stop();
  EXPECT_EQ(pipeline().state(), State::kDraining);
  EXPECT_FALSE(pipeline().want_frame()) << "nothing new is taken";
  EXPECT_FALSE(pipeline().finished());
  Deliver(0);
  EXPECT_TRUE(pipeline().connected());
  Deliver(1);
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(confirmed_, Lsn(108)) << "by the final status";
  ExpectFinished();
  EXPECT_FALSE(pipeline().halt());
}

TEST_F(StopTest, NothingInFlightFinishesAtOnce) {
  Connect();
  Keepalive(500);
  Stop();
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(confirmed_, Lsn(500));
  ExpectFinished();
}

TEST_F(StopTest, TransactionThatIsOpenIsReadToItsEnd) {
  Connect();
  SendPayload(Begin(200));
  Event("a1");
  Stop();
  Deliver(0);
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_TRUE(pipeline().connected()) << "although nothing is in flight";
  Event("a2");
  SendPayload(Commit(200));
  EXPECT_FALSE(pipeline().want_frame()) << "the next transaction is not begun";
  Deliver(1);
  EXPECT_EQ(confirmed_, Lsn(208)) << "so the next start repeats nothing";
  ExpectFinished();
}

TEST_F(StopTest, TransactionWhoseEndDoesNotComeIsNotConfirmed) {
  Connect();
  Transaction(100, {"a1"});
  SendPayload(Begin(200));
  Event("a2");
  Stop();
  DeliverAll();
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + Pipeline::kCompleteWithin);
  Advance(Pipeline::kCompleteWithin);
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(confirmed_, Lsn(108));
  ExpectFinished();
}

TEST_F(StopTest, RowThatIsRejectedEndsTheReadingOfAnOpenTransaction) {
  Connect();
  Transaction(100, {"a1"});
  SendPayload(Begin(200));
  Stop();
  SendPayload("?");
  EXPECT_FALSE(pipeline().want_frame());
  DeliverAll();
  EXPECT_EQ(confirmed_, Lsn(108));
  ExpectFinished();
}

TEST_F(StopTest, StatusesGoOnWhileDraining) {
  Connect();
  Transaction(100, {"a1"});
  Stop();
  Advance(milliseconds(10'000));
  EXPECT_TRUE(TakeStatus());
}

TEST_F(StopTest, DrainGoesThroughNewSessionsToo) {
  Connect();
  Transaction(100, {"a1", "b1"});
  Stop();
  sink_.Fail(0, FailureKind::kSessionEnded);
  Settle();
  DeliverAll();
  EXPECT_EQ(confirmed_, Lsn(108));
  ExpectFinished();
}

TEST_F(StopTest, DrainIsBoundedByShutdownTimeout) {
  options_.shutdown_timeout = milliseconds(5'000);
  Connect();
  Transaction(100, {"a1"});
  Transaction(200, {"b1"});
  Deliver(0);
  Stop();
  Advance(milliseconds(4'999));
  EXPECT_FALSE(pipeline().finished());
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + milliseconds(1));
  Advance(milliseconds(1));
  EXPECT_EQ(confirmed_, Lsn(108));
  ExpectFinished();
  EXPECT_EQ(pipeline().counters().events_discarded, 1U) << "it comes again from the slot";
}

TEST_F(StopTest, SecondStopDoesNotProlongTheDrain) {
  options_.shutdown_timeout = milliseconds(5'000);
  Connect();
  Transaction(100, {"a1"});
  Stop();
  Advance(milliseconds(3'000));
  Stop();
  Advance(milliseconds(2'000));
  ExpectFinished();
}

TEST_F(StopTest, EventThatCannotBeDeliveredDoesNotHoldUpTheDrain) {
  Connect();
  sink_.Reject(1, {FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  SendPayload(Begin(200));
  Event("b1");  // begins a halt
  Stop();
  Advance(milliseconds(1'000));
  EXPECT_FALSE(pipeline().finished()) << "a1 can be delivered";
  Deliver(0);
  EXPECT_EQ(confirmed_, Lsn(108));
  ExpectFinished();
}

TEST_F(StopTest, HaltDuringTheDrainEndsIt) {
  Connect();
  Transaction(100, {"a1", "b1"});
  Stop();
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Settle();
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Settle();
  EXPECT_EQ(confirmed_, Lsn());
  ExpectFinished();
  EXPECT_EQ(pipeline().counters().events_discarded, 2U);
}

TEST_F(StopTest, StreamThatEndsDuringTheDrainEndsIt) {
  Connect();
  Transaction(100, {"a1"});
  Stop();
  End(StreamEnd::Kind::kLost);
  ExpectFinished();
}

TEST_F(StopTest, ServerThatStopsDuringTheDrainIsLetGo) {
  Connect();
  Transaction(100, {"a1"});
  Stop();
  pipeline().OnPing(base::PingAnswer::kStopping, now_.mono, now_);
  ExpectFinished();
  EXPECT_EQ(last_command_, StreamCommand::kClose);
}

TEST_F(StopTest, StopBetweenConnectionsFinishes) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  Stop();
  ExpectFinished();
}

TEST_F(StopTest, ConnectionThatComesAfterTheStopIsClosed) {
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  Stop();
  pipeline().OnConnected(facts_, now_);
  Tick();
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  EXPECT_FALSE(pipeline().want_frame());
  ExpectFinished();
}

TEST_F(StopTest, StopOfAHaltedPipelineFinishesAndKeepsTheReason) {
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  EndForOperator(base::HaltReason::kSlotMissing, "no slot");
  ExpectHalted(base::HaltReason::kSlotMissing, "no slot");
  Stop();
  ExpectFinished();
  EXPECT_TRUE(pipeline().halt());
  pipeline().Resume(now_);
  EXPECT_TRUE(pipeline().finished());
}

TEST_F(StopTest, SinkThatIsSlowToCloseIsWaitedFor) {
  Connect();
  Transaction(100, {"a1"});
  sink_.HoldClose(true);
  Stop();
  DeliverAll();
  Advance(milliseconds(60'000));
  EXPECT_FALSE(pipeline().finished());
  sink_.HoldClose(false);
  ExpectFinished();
}

// It is another history: nothing more of it is delivered or confirmed.
TEST_F(StopTest, ServerThatLostRowsOfDeadLettersHaltsADrain) {
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  Connect();
  for (const delivery::Sequence sequence : {0, 1, 2}) {
    sink_.Reject(sequence, delivery::Failure{FailureKind::kRecordTooLarge, "too large"});
  }
  Transaction(100, {"a1", "a2"});
  DeliverAll();
  ASSERT_EQ(Confirmed(), Lsn(108));
  serve_dead_letters_ = false;
  Transaction(200, {"a3", "b1"});
  sink_.DeliverAll();
  Settle();
  pipeline().Stop(now_);
  dead_letters_.rows.clear();
  dead_letters_.written = 0;
  serve_dead_letters_ = true;
  Settle();
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  EXPECT_EQ(confirmed_, Lsn(108));
  ASSERT_TRUE(pipeline().halt());
  EXPECT_EQ(pipeline().halt()->reason, base::HaltReason::kTimelineChanged);
}

}  // namespace
}  // namespace walpost::pipeline
