// How a parked key is released, or discarded.
#include "park_fixture.h"
#include "walpost/v1/outbox_message.pb.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using delivery::Failure;
using delivery::FailureKind;
using envelope::LetterAction;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ParkTest, RetrySendsTheParkedEventsInOrderAndThenLetsTheKeyGo) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_EQ(MarkOf('a', 0), "dlq-retry");
  EXPECT_THAT(Log(), ElementsAre("parked:a1", "parked:a2", "parked:a3", "command:retry",
                                 "decision:delivered"));
  EXPECT_EQ(log_[4].letter.answers, 3);
  EXPECT_EQ(log_[4].letter.through, log_[2].letter.position);
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  Transaction(200, {"a4"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3", "a4"));
  EXPECT_EQ(MarkOf('a', 3), "");
}

TEST_F(ParkTest, EventsThatComeDuringARetryAreParkedAndSentInTheirTurn) {
  Connect();
  ParkA(100, {"a1", "a2"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "a1, on its way again";
  Transaction(200, {"a3", "b1"});
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  EXPECT_EQ(pipeline().counters().events_parked, 3U);
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, LineStopsOnlyWhileTheDecisionIsOnItsWayAndOnlyForTheKey) {
  Connect();
  ParkA(100, {"a1"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  sink_.DeliverAll();  // a1
  Tick();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "the decision";
  Transaction(200, {"b1"});
  EXPECT_THAT(sink_.outstanding(), SizeIs(2));
  SendPayload(Begin(300));
  Event("a2");
  EXPECT_FALSE(pipeline().want_frame());
  EXPECT_THAT(sink_.outstanding(), SizeIs(2));
  Run();
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
  EXPECT_EQ(pipeline().counters().events_parked, 1U);
}

TEST_F(ParkTest, FirstLetterOfAKeyWaitsForEventsThatAreStillOnTheirWay) {
  Connect();
  Transaction(100, {"a1"});  // not acknowledged yet
  sink_.Refuse(1, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(200));
  Event("a2");
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0));
  EXPECT_FALSE(pipeline().want_frame());
  sink_.Fail(0, FailureKind::kTopicUnknown);
  Settle();
  sink_.Fail(0, FailureKind::kTopicUnknown, "now alone");
  Settle();
  Run();
  ASSERT_THAT(Log(), ElementsAre("parked:a1", "parked:a2")) << "not a2 first";
  SendPayload(Commit(200));
  AppendCommand(LetterAction::kRetry, "orders", "a");
  sink_.StopRefusing();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

TEST_F(ParkTest, EventBeforeTheFirstParkedOneGoesByItself) {
  Connect();
  Transaction(100, {"a1"});
  sink_.Refuse(1, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(200));
  Event("a2");
  sink_.Fail(0, FailureKind::kGenerationEnded);
  Settle();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Log(), ElementsAre("parked:a2"));
}

TEST_F(ParkTest, RetryOfAnEventThatIsRefusedOnceMoreAfterAWhileIsAnsweredAndTheKeyStaysParked) {
  Connect();
  ParkA(100, {"a1", "a2"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  sink_.Refuse(ParkingLot::kFirstSequence + 1, Failure{FailureKind::kRecordTooLarge, "still"},
               "orders");
  Look();
  Run();
  EXPECT_THAT(Log(), SizeIs(3)) << "no answer yet";
  Advance(ParkingLot::kRetryRefusedAfter);
  Run();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Log(), ElementsAre("parked:a1", "parked:a2", "command:retry", "decision:failed"));
  EXPECT_THAT(log_[3].letter.detail, HasSubstr("cannot be delivered yet: still"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
  AppendCommand(LetterAction::kRetry, "orders", "a");
  sink_.StopRefusing();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

TEST_F(ParkTest, FailureInCompanyIsNoVerdictOnARetriedEvent) {
  Connect();
  ParkA(100, {"a1"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  const delivery::Sequence again = ParkingLot::kFirstSequence + 1;
  ASSERT_THAT(sink_.outstanding(), ElementsAre(again));
  sink_.Fail(again, FailureKind::kRecordTooLarge, "its batch");
  Settle();
  ASSERT_THAT(sink_.outstanding(), ElementsAre(again)) << "alone";
  EXPECT_EQ(sink_.generation().mode, delivery::Sink::Mode::kCareful);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  EXPECT_EQ(sink_.generation().mode, delivery::Sink::Mode::kFast);
}

TEST_F(ParkTest, RetryGoesOnAfterItsProducerDied) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  sink_.DeliverAll();
  Tick();
  sink_.FailGeneration("fenced");
  Settle();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, DiscardOfAKeyDecidesAllOfItWithoutSending) {
  Connect();
  ParkA(100, {"a1", "a2"});
  AppendCommand(LetterAction::kDiscard, "orders", "a");
  Look();
  Run();
  Transaction(200, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a3"));
  EXPECT_EQ(Log().back(), "decision:discarded");
}

TEST_F(ParkTest, DiscardOfAKeyWaitsForLettersThatAreOnTheirWay) {
  Connect();
  ParkA(100, {"a1"});
  Transaction(200, {"a2"});  // its letter is not acknowledged
  AppendCommand(LetterAction::kDiscard, "orders", "a");
  Look();
  EXPECT_THAT(sink_.outstanding(), ElementsAre(1))
      << "a2 behind the decision would be parked again";
  Run();
  EXPECT_THAT(Log(),
              ElementsAre("parked:a1", "command:discard", "parked:a2", "decision:discarded"));
  EXPECT_EQ(log_[3].letter.through, log_[2].letter.position);
  Restart();
  Connect(Lsn());
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, DecisionOfAnotherInstanceDuringARetryEndsIt) {
  Connect();
  ParkA(100, {"a1", "a2"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "a1, on its way again";
  AppendDecision(LetterAction::kDelivered, "a", 2, log_[1].letter.position);
  Look();
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1")) << "what the other one sent is not in this log";
  EXPECT_THAT(Log(), SizeIs(4)) << "no second answer";
}

TEST_F(ParkTest, WhatIsDecidedIsNotSentWhenLaterEventsOfTheKeyAreStillParked) {
  Connect();
  ParkA(100, {"a1", "a2"});
  AppendCommand(LetterAction::kDiscard, "orders", "a");
  AppendDecision(LetterAction::kDiscarded, "a", 2,
                 log_[0].letter.position);  // by an instance before
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, DiscardOfOneEventLeavesItOutOfTheRetry) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  AppendCommand(LetterAction::kDiscard, "orders", "a", log_.at(0).letter.position);
  Look();
  Run();
  EXPECT_EQ(pipeline().parked_keys(), 1U);
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a2", "a3"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, TopicWhoseLimitWasJustRaisedIsAskedAgainBeforeTheAnswer) {
  Connect();
  ParkA(100, {"a1"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  sink_.Refuse(ParkingLot::kFirstSequence + 1, Failure{FailureKind::kRecordTooLarge, "old limit"},
               "orders");
  Look();
  Run();
  sink_.StopRefusing();
  Advance(ParkingLot::kRetryRefusedAfter);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_EQ(Log().back(), "decision:delivered");
}

TEST_F(ParkTest, KeyWhoseEventsWereAllDiscardedOneByOneGoesOn) {
  Connect();
  ParkA(100, {"a1", "a2"});
  for (const std::size_t event : {0U, 1U}) {
    EXPECT_EQ(pipeline().parked_keys(), 1U);
    ServeLetters();
    AppendCommand(LetterAction::kDiscard, "orders", "a", log_.at(event).letter.position);
    Look();
    Run();
  }
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  Transaction(200, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a3"));
}

TEST_F(ParkTest, RefusedDecisionIsNoDeadlineAnyMoreWhenItsTimeHasCome) {
  Connect();
  ParkA(100, {"a1"});
  AppendCommand(LetterAction::kDiscard, "orders", "a");
  sink_.Refuse(ParkingLot::kFirstSequence + 1, Failure{FailureKind::kTopicNotAuthorized, "no"},
               "dead-letters");
  Look();
  sink_.SetNotNow(true);
  sink_.StopRefusing();
  Advance(ParkingLot::kRetryRefusedAfter);
  Confirmed();
  EXPECT_GT(pipeline().NextDeadline(), now_.mono) << "the loop would spin";
  sink_.SetNotNow(false);
  Run();
  EXPECT_EQ(Log().back(), "decision:discarded");
}

TEST_F(ParkTest, StubCannotBeRetriedAndSaysWhatCanBeDone) {
  Connect();
  Transaction(100, {"a1"});
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Settle();
  sink_.Fail(0, FailureKind::kRecordTooLarge, "too large");
  Settle();
  sink_.Fail(0, FailureKind::kRecordTooLarge, "too large for letters");
  Settle();
  DeliverAll();
  ASSERT_THAT(Log(), ElementsAre("parked:a1"));
  EXPECT_TRUE(log_[0].letter.left_out_bytes);
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(log_.back().letter.detail, HasSubstr("is a stub"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

// The letter's value is the message's content, and no record's.
TEST_F(ParkTest, MalformedMessageIsNotSent) {
  options_.messages.prefixes = {"shop"};
  Connect();
  v1::OutboxMessage message;
  message.set_id("m1");
  message.set_aggregate_type("orders");
  message.set_aggregate_id("a");
  SendPayload(Begin(100));
  SendPayload(
      walpost::testing::LogicalMessageBytes(true, Lsn(90), "shop", message.SerializeAsString()));
  SendPayload(Commit(100));
  Transaction(110, {"a2"});
  DeliverAll();
  EXPECT_THAT(Log(), ElementsAre("parked:m1", "parked:a2"));
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(log_.back().letter.detail, HasSubstr("cannot be sent from here"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

TEST_F(ParkTest, CommandForAKeyThatIsNotParkedIsAnswered) {
  Connect();
  ParkA(100, {"a1"});
  AppendCommand(LetterAction::kRetry, "orders", "z");
  Look();
  Run();
  EXPECT_EQ(Log().back(), "decision:failed");
  EXPECT_THAT(log_.back().letter.detail, HasSubstr("not parked"));
}

TEST_F(ParkTest, EventParkedAgainAfterACrashIsSentOnce) {
  Connect();
  ParkA(100, {"a1", "a2"});
  Restart();
  Connect();
  Transaction(100, {"a1", "a2"});  // it was not confirmed
  DeliverAll();
  EXPECT_THAT(Log(), SizeIs(4));
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, LogReadRecordByRecordGivesTheSame) {
  letters_per_read_ = 1;
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  Restart();
  Connect();
  Transaction(100, {"a1"});  // parked again, and the crash came before the others
  DeliverAll();
  Restart();
  Connect();
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, EventParkedTwiceBeforeOthersIsSentOnce) {
  letters_per_read_ = 1;
  Connect();
  ParkA(100, {"a1", "a2"});
  Restart();
  Connect();
  Transaction(100, {"a1", "a2"});
  Transaction(200, {"a3"});
  DeliverAll();
  ASSERT_THAT(Log(), SizeIs(5));
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
}

TEST_F(ParkTest, CommandThatWasAnsweredBeforeTheStartIsNotObeyedAgain) {
  Connect();
  ParkA(100, {"a1"});
  AppendCommand(LetterAction::kRetry, "orders", "a");
  Look();
  Run();
  ASSERT_THAT(Log(), SizeIs(3));
  Restart();
  Connect();
  Run();
  EXPECT_THAT(Log(), SizeIs(3));
}

}  // namespace
}  // namespace walpost::pipeline
