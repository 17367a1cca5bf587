// Failed reports: new sessions, resubmission in order, and the halt undeliverable_event.
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using base::State;
using delivery::Failure;
using delivery::FailureKind;
using delivery::Sink;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeliveryTest : public PipelineFixture {
 protected:
  Sink::Mode mode() const { return sink_.session().mode; }
};

TEST_F(DeliveryTest, FailedReportResubmitsInOrderThroughCarefulThenFast) {
  Connect();
  Transaction(100, {"a1", "b1", "a2", "b2"});
  sink_.Deliver(0);
  sink_.Fail(1, FailureKind::kOther);
  Settle();
  EXPECT_EQ(mode(), Sink::Mode::kOneAtATime);
  EXPECT_THAT(sink_.outstanding(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(pipeline().want_frame());
  EXPECT_TRUE(pipeline().connected()) << "the stream is not touched";
  DeliverAll();
  Settle();
  EXPECT_EQ(mode(), Sink::Mode::kPipelined);
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
  EXPECT_THAT(Visible('b'), ElementsAre("b1", "b2"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_EQ(pipeline().counters().records_resubmitted, 3U);
  EXPECT_FALSE(pipeline().halt());
  ExpectAccounted();
}

TEST_F(DeliveryTest, EventsOfTheNextTransactionFollowTheResubmittedOnes) {
  Connect();
  Transaction(100, {"a1", "a2"});
  sink_.Fail(0, FailureKind::kSessionEnded);
  Settle();
  DeliverAll();
  Settle();
  Transaction(200, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_EQ(Confirmed(), Lsn(208));
}

TEST_F(DeliveryTest, EventThatCannotBeDeliveredHaltsAndIsNamed) {
  Connect();
  Transaction(100, {"a1", "b7", "c1"});
  sink_.Fail(1, FailureKind::kRecordTooLarge);
  Settle();
  Deliver(0);
  sink_.Fail(1, FailureKind::kRecordTooLarge, "larger than max.message.bytes");
  ExpectHalted(HaltReason::kUndeliverableEvent,
               "event b7 of outbox.events (type created, with a key) for topic orders, commit LSN "
               "0/64, ordinal 1, cannot be delivered: larger "
               "than max.message.bytes");
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(confirmed_, Lsn()) << "its transaction must come again";
  EXPECT_EQ(pipeline().counters().events_discarded, 2U);
}

TEST_F(DeliveryTest, WhatWasDeliveredBeforeTheHaltIsConfirmed) {
  Connect();
  Transaction(100, {"a1"});
  Transaction(200, {"b1"});
  Transaction(300, {"c1"});
  sink_.Fail(1, FailureKind::kRecordInvalid);
  Settle();
  Deliver(0);
  sink_.Fail(1, FailureKind::kRecordInvalid);
  ExpectHalted(HaltReason::kUndeliverableEvent, "event b1");
  EXPECT_EQ(confirmed_, Lsn(108));
}

TEST_F(DeliveryTest, RecordTheSinkRejectsHaltsAfterWhatCameBeforeIt) {
  Connect();
  sink_.Reject(1, Failure{FailureKind::kTopicUnknown, "topic 'orders' does not exist"});
  SendPayload(Begin(100));
  Event("a1");
  SendPayload(Commit(100));
  SendPayload(Begin(200));
  Event("b1");
  EXPECT_FALSE(pipeline().want_frame());
  EXPECT_FALSE(pipeline().halted()) << "a1 is under way";
  Settle();
  EXPECT_TRUE(pipeline().connected());
  Deliver(0);
  ExpectHalted(HaltReason::kUndeliverableEvent, "topic 'orders' does not exist");
  EXPECT_EQ(confirmed_, Lsn(108));
}

TEST_F(DeliveryTest, ProducerFailureDuringAHaltStillDeliversWhatCameBefore) {
  Connect();
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  SendPayload(Begin(200));
  Event("b1");
  sink_.FailSession("fatal");
  Settle();
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0));
  Deliver(0);
  ExpectHalted(HaltReason::kUndeliverableEvent, "event b1");
  EXPECT_EQ(confirmed_, Lsn(108));
}

TEST_F(DeliveryTest, EarlierEventJudgedDuringAHaltIsTheOneNamed) {
  Connect();
  Transaction(100, {"a1"});
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  SendPayload(Begin(200));
  Event("b1");
  sink_.Fail(0, FailureKind::kRecordInvalid);
  Settle();
  sink_.Fail(0, FailureKind::kRecordInvalid, "invalid timestamp");
  ExpectHalted(HaltReason::kUndeliverableEvent, "event a1");
}

TEST_F(DeliveryTest, HaltGivesUpOnWhatCameBeforeAfterTheTimeout) {
  options_.shutdown_timeout = milliseconds(5'000);
  Connect();
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  SendPayload(Begin(100));
  Event("a1");
  Event("b1");
  Advance(milliseconds(4'999));
  EXPECT_TRUE(pipeline().connected());
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + milliseconds(1));
  Advance(milliseconds(1));
  ExpectHalted(HaltReason::kUndeliverableEvent, "event b1");
  EXPECT_EQ(pipeline().counters().events_discarded, 2U);
}

TEST_F(DeliveryTest, RejectionWhileDisconnectedHaltsToo) {
  Connect();
  Transaction(100, {"a1"});
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Settle();
  End(base::StreamEnd::Kind::kLost);
  sink_.Fail(0, FailureKind::kRecordTooLarge, "too large");
  ExpectHalted(HaltReason::kUndeliverableEvent, "event a1");
}

TEST_F(DeliveryTest, RowThatCannotBecomeAnEventHaltsAfterWhatCameBeforeIt) {
  Connect();
  Transaction(100, {"a1"});
  SendPayload(Begin(200));
  using walpost::testing::NullColumn;
  using walpost::testing::TextColumn;
  SendPayload(EventBytes(
      {TextColumn("b1"), NullColumn(), TextColumn("orders"), TextColumn("t"), NullColumn()}));
  EXPECT_FALSE(pipeline().halted());
  Deliver(0);
  ExpectHalted(HaltReason::kUndeliverableEvent, "aggregate_id is NULL in event 'b1'");
  EXPECT_EQ(confirmed_, Lsn(108));
}

TEST_F(DeliveryTest, HaltWaitsForTheSinkToLetGoOfTheRecords) {
  Connect();
  Transaction(100, {"a1", "b1"});
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Settle();
  sink_.HoldClose(true);
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Settle();
  EXPECT_EQ(pipeline().state(), State::kHalted);
  EXPECT_FALSE(pipeline().halted()) << "the producer may still read the records";
  EXPECT_EQ(pipeline().tracker().in_flight_events(), 2U);
  sink_.HoldClose(false);
  ExpectHalted(HaltReason::kUndeliverableEvent, "event a1");
}

}  // namespace
}  // namespace walpost::pipeline
