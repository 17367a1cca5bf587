// How a parked key is released, or discarded.
#include "outbox/column_value.h"
#include "park_fixture.h"
#include "walpost/v1/outbox_message.pb.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using delivery::Failure;
using delivery::FailureKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(ParkTest, RetrySendsTheParkedEventsInOrderAndThenLetsTheKeyGo) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  RetryA();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_EQ(MarkOf('a', 0), "dlq-retry");
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  EXPECT_TRUE(pipeline().dead_letters_idle()) << "no connection is needed";
  Transaction(200, {"a4"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3", "a4"));
  EXPECT_EQ(MarkOf('a', 3), "");
}

TEST_F(ParkTest, EventsThatComeDuringARetryAreParkedAndSentInTheirTurn) {
  Connect();
  std::vector<std::string> ids(DeadLetters::kHeldRowsMax + 5, "a1");
  ParkA(100, ids);
  RetryA();
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "the first, on its way again";
  Transaction(200, {"a3", "b1"});
  EXPECT_TRUE(pipeline().want_frame());
  Run();
  EXPECT_EQ(Visible('a').back(), "a3");
  EXPECT_THAT(Visible('a'), SizeIs(ids.size() + 1));
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  EXPECT_EQ(pipeline().counters().events_parked, ids.size() + 1);
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, LineStopsOnlyForTheLastRowsAndOnlyForTheKey) {
  Connect();
  ParkA(100, {"a1"});
  RetryA();
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "a1";
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

TEST_F(ParkTest, RetryOfAnEventThatIsRejectedOnceMoreAfterAWhileFailsAndTheKeyStaysParked) {
  Connect();
  ParkA(100, {"a1", "a2"});
  RetryA();
  sink_.Reject(DeadLetters::kFirstSequence + 1, Failure{FailureKind::kRecordTooLarge, "still"},
               "orders");
  Look();
  Run();
  EXPECT_TRUE(dead_letters_.rows[0].retry()) << "no answer yet";
  Advance(DeadLetters::kRetryRejectedAfter);
  Run();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
  EXPECT_EQ(dead_letters_.rows[0].decision, Decision::kNone);
  EXPECT_EQ(dead_letters_.rows[1].decision, Decision::kNone);
  EXPECT_EQ(dead_letters_.rows[0].detail, "still");
  EXPECT_EQ(pipeline().parked_keys(), 1U);
  RetryA();
  sink_.StopRejecting();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

TEST_F(ParkTest, FailureInCompanyDecidesNothingAboutARetriedEvent) {
  Connect();
  ParkA(100, {"a1"});
  RetryA();
  Look();
  const delivery::Sequence again = DeadLetters::kFirstSequence + 1;
  ASSERT_THAT(sink_.outstanding(), ElementsAre(again));
  sink_.Fail(again, FailureKind::kRecordTooLarge, "its batch");
  Settle();
  ASSERT_THAT(sink_.outstanding(), ElementsAre(again)) << "alone";
  EXPECT_EQ(sink_.session().mode, delivery::Sink::Mode::kOneAtATime);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  EXPECT_EQ(sink_.session().mode, delivery::Sink::Mode::kPipelined);
}

// librdkafka says that its pipelined producer died before it reports the record that it died of.
TEST_F(ParkTest, RetriedEventWhoseProducerDiedIsTriedAlone) {
  Connect();
  ParkA(100, {"a1"});
  RetryA();
  Look();
  const delivery::Sequence again = DeadLetters::kFirstSequence + 1;
  ASSERT_THAT(sink_.outstanding(), ElementsAre(again));
  sink_.FailSession("of a record");
  Settle();
  ASSERT_THAT(sink_.outstanding(), ElementsAre(again));
  EXPECT_EQ(sink_.session().mode, delivery::Sink::Mode::kOneAtATime);
}

TEST_F(ParkTest, RetryGoesOnAfterItsProducerDied) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  RetryA();
  Look();
  sink_.DeliverAll();
  Tick();
  sink_.FailSession("fenced");
  Settle();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, DiscardOfAKeyClosesAllOfItWithoutSending) {
  Connect();
  ParkA(100, {"a1", "a2"});
  dead_letters_.Decide(0, Decision::kDiscard, /*of_key=*/true);
  Look();
  Run();
  Transaction(200, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a3"));
  EXPECT_THAT(Rows(), ElementsAre("closed:a1", "closed:a2"));
}

TEST_F(ParkTest, DiscardOfAKeySendsWhatCameAfterTheDecision) {
  Connect();
  ParkA(100, {"a1"});
  dead_letters_.Decide(0, Decision::kDiscard, /*of_key=*/true);
  serve_dead_letters_ = false;
  Transaction(200, {"a2"});  // is to be written
  serve_dead_letters_ = true;
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a2"));
  EXPECT_THAT(Rows(), ElementsAre("closed:a1"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, DiscardOfAKeySendsWhatBecameARowAfterTheDecision) {
  Connect();
  ParkA(100, {"a1"});
  dead_letters_.Decide(0, Decision::kDiscard, /*of_key=*/true);
  Transaction(200, {"a2", "a3"});
  Tick();
  ASSERT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2", "parked:a3"));
  Look();
  Run();
  Transaction(300, {"a4"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a2", "a3", "a4"));
  EXPECT_THAT(Rows(), ElementsAre("closed:a1"));
}

TEST_F(ParkTest, DiscardOfOneEventLeavesItOutOfTheRetry) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  dead_letters_.Decide(0, Decision::kDiscard, /*of_key=*/false);
  Look();
  Run();
  EXPECT_EQ(pipeline().parked_keys(), 1U);
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/true);
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a2", "a3"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, KeyWhoseEventsWereAllDiscardedOneByOneGoesOn) {
  Connect();
  ParkA(100, {"a1", "a2"});
  for (const std::size_t row : {0U, 1U}) {
    EXPECT_EQ(pipeline().parked_keys(), 1U);
    dead_letters_.Decide(row, Decision::kDiscard, /*of_key=*/false);
    Look();
    Run();
  }
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  Transaction(200, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a3"));
}

TEST_F(ParkTest, DiscardedEventThatComesAgainStaysDiscarded) {
  Connect();
  ParkA(100, {"a1", "a2"});
  dead_letters_.Decide(0, Decision::kDiscard, /*of_key=*/true);
  Look();
  Run();
  Restart();
  Connect();
  ParkA(100, {"a1", "a2"});  // it was not confirmed
  EXPECT_THAT(Rows(), ElementsAre("closed:a1", "closed:a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  EXPECT_EQ(Confirmed(), Lsn(108));
}

// They were settled before the rows were written, so they come again before them.
TEST_F(ParkTest, EventsFromBeforeTheParkedOnesGoByThemselves) {
  Connect();
  ParkA(500, {"a1", "a2"});
  Restart();
  Connect();
  Transaction(300, {"a3", "a4"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a3", "a4"));
  RetryA();
  Transaction(500, {"a1", "a2"});
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a3", "a4", "a1", "a2"));
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_F(ParkTest, RowsOfAnotherClusterAreBeforeAllOfThisOne) {
  Connect();
  ParkA(500, std::vector<std::string>(DeadLetters::kHeldRowsMax + 5, "a1"));
  for (base::DeadLetter& row : dead_letters_.rows) {
    row.position.replace(0, 16, 16, 'f');
  }
  Restart();
  Connect();
  RetryA();
  Look();
  sink_.DeliverAll();
  Settle();
  Transaction(600, {"a2"});
  Run();
  EXPECT_THAT(Visible('a'), SizeIs(DeadLetters::kHeldRowsMax + 6));
  EXPECT_EQ(Visible('a').back(), "a2");
}

TEST_F(ParkTest, TopicWhoseLimitWasJustRaisedIsAskedAgainBeforeTheRetryFails) {
  Connect();
  ParkA(100, {"a1"});
  RetryA();
  sink_.Reject(DeadLetters::kFirstSequence + 1, Failure{FailureKind::kRecordTooLarge, "old limit"},
               "orders");
  Look();
  Run();
  sink_.StopRejecting();
  Advance(DeadLetters::kRetryRejectedAfter);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_F(ParkTest, RejectedRetryIsNoDeadlineAnyMoreWhenItsTimeHasCome) {
  Connect();
  ParkA(100, {"a1"});
  RetryA();
  sink_.Reject(DeadLetters::kFirstSequence + 1, Failure{FailureKind::kTopicNotAuthorized, "no"},
               "orders");
  Look();
  sink_.SetNotNow(true);
  sink_.StopRejecting();
  Advance(DeadLetters::kRetryRejectedAfter);
  Confirmed();
  EXPECT_GT(pipeline().NextDeadline(), now_.mono) << "the loop would spin";
  sink_.SetNotNow(false);
  Run();
  EXPECT_THAT(Rows(), IsEmpty());
}

// What is there is the message's content, and no record's.
TEST_F(ParkTest, MalformedMessageIsNotSentAndSaysWhatCanBeDone) {
  options_.messages.prefixes = {"shop"};
  options_.messages.halts = true;
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
  EXPECT_THAT(Rows(), ElementsAre("parked:m1", "parked:a2"));
  RetryA();
  Look();
  Run();
  EXPECT_THAT(dead_letters_.rows[0].detail, HasSubstr("discard it by its id"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

TEST_F(ParkTest, RowWithoutARecordKeepsWhatWasWrongWithIt) {
  Connect();
  ParkA(100, {"a1"});
  dead_letters_.rows[0].truncated_bytes = 7;
  const std::string before = dead_letters_.rows[0].detail;
  for (int i = 0; i < 2; ++i) {
    RetryA();
    Look();
    Run();
    EXPECT_THAT(dead_letters_.rows[0].detail,
                AllOf(::testing::StartsWith("it has no record"), HasSubstr("correct its row"),
                      ::testing::EndsWith("; " + before)));
    EXPECT_LT(dead_letters_.rows[0].detail.size(), 2 * before.size() + 100);
  }
}

// Any SQL role may emit, and whoever fills the table stops the line.
TEST_F(ParkTest, MessagesOfAParkedKeyAreSkippedOnceAQuarterOfTheTableIsOpen) {
  options_.messages.prefixes = {"shop"};
  options_.dead_letters_max = 8;
  Connect();
  ParkA(100, {"a1"});
  v1::OutboxMessage message;
  message.set_type("T");
  message.set_aggregate_type("orders");
  message.set_aggregate_id("a");
  SendPayload(Begin(200));
  for (int i = 0; i < 20; ++i) {
    message.set_id("m" + std::to_string(i));
    SendPayload(
        walpost::testing::LogicalMessageBytes(true, Lsn(190), "shop", message.SerializeAsString()));
  }
  SendPayload(Commit(200));
  DeliverAll();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:m0"));
  EXPECT_EQ(pipeline().counters().events_skipped, 19U);
  EXPECT_FALSE(pipeline().halt());
  Transaction(300, {"a2"});
  DeliverAll();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:m0", "parked:a2")) << "a row is not skipped";
}

// What says nothing about the message must not let others overtake it.
TEST_F(ParkTest, MessageLeavesItsKeyOnlyWhenTheAnswerIsAboutIt) {
  using delivery::FailureKind;
  for (const auto kind : {FailureKind::kOther, FailureKind::kTopicNotAuthorized,
                          FailureKind::kTopicUnknown, FailureKind::kRecordInvalid}) {
    Restart();
    dead_letters_.rows.clear();
    Connect();
    ParkA(100, {"a1", "a2"});
    dead_letters_.rows[0].source = "message:shop";
    RetryA();
    sink_.Reject(DeadLetters::kFirstSequence + 1, Failure{kind, "no"}, "orders");
    Look();
    Run();
    Advance(DeadLetters::kRetryRejectedAfter);
    Run();
    EXPECT_EQ(dead_letters_.rows[0].detail, "no");
    EXPECT_EQ(dead_letters_.rows[0].parked, kind != FailureKind::kRecordInvalid);
    sink_.StopRejecting();
  }
}

TEST_F(ParkTest, RowsReadOneByOneGiveTheSame) {
  dead_letters_.rows_per_reading = 1;
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  Restart();
  Connect();
  Transaction(100, {"a1"});  // comes again, and the crash came before the others
  DeliverAll();
  Restart();
  Connect();
  RetryA();
  Transaction(100, {"a1"});
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, KeyThatWasParkedBesideTheStreamIsReleasedToo) {
  Connect();
  ParkA(100, {"a1"});
  base::DeadLetter row = dead_letters_.rows[0];
  row.seq = 99;
  row.position.clear();
  row.event_id = "z1";
  row.key = "z";
  dead_letters_.rows.push_back(row);
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/true);
  Look();
  Run();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

// A row has its number before it is committed.
TEST_F(ParkTest, RowThatWasCommittedLateIsSentBeforeTheKeyGoesOn) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  const base::DeadLetter late = dead_letters_.rows[1];
  dead_letters_.rows.erase(dead_letters_.rows.begin() + 1);
  dead_letters_.rows_per_reading = 1;
  RetryA();
  Look();
  ASSERT_THAT(Visible('a'), IsEmpty());
  dead_letters_.rows.push_back(late);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a3", "a2"));
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

// Its key is parked because of other rows.
TEST_F(ParkTest, RetryOfADeadLetterThatSomebodyClosesMeanwhileLetsNoKeyGo) {
  Connect();
  ParkA(100, {"a1", "a2"});
  dead_letters_.rows[0].parked = false;
  dead_letters_.Decide(0, Decision::kRetry, /*of_key=*/false);
  dead_letters_.rows_per_reading = 0;  // between the look for decisions and the reading of the row
  Look();
  Transaction(200, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

TEST_F(ParkTest, DiscardThatBecameARetryMeanwhileIsSentInItsTurn) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  RetryA();
  dead_letters_.rows[1].decision = Decision::kDiscard;
  Look();
  dead_letters_.rows[1].decision = Decision::kRetry;
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_F(ParkTest, KeyThatIsDiscardedDuringItsRetryIsSentNoFurther) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  RetryA();
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "a1";
  DiscardA();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Rows(), ElementsAre("closed:a2", "closed:a3"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, RejectedRetryThatIsDiscardedMeanwhileIsNotSentAgain) {
  Connect();
  ParkA(100, {"a1", "a2"});
  RetryA();
  sink_.Reject(DeadLetters::kFirstSequence + 1, Failure{FailureKind::kRecordTooLarge, "still"},
               "orders");
  Look();
  DiscardA();
  sink_.StopRejecting();
  Advance(DeadLetters::kRetryRejectedAfter);
  Run();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Rows(), ElementsAre("closed:a1", "closed:a2"));
}

TEST_F(ParkTest, RetryThatIsTakenBackGoesNoFurther) {
  Connect();
  ParkA(100, {"a1", "a2"});
  RetryA();
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "a1";
  dead_letters_.Decide(1, Decision::kNone, /*of_key=*/false);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a2"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

TEST_F(ParkTest, RowBeforeTheDiscardedOnesThatNobodyDecidedAboutIsNotSent) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  DiscardA();
  dead_letters_.Decide(0, Decision::kNone, /*of_key=*/false);
  Look();
  Run();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "closed:a2", "closed:a3"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

// Who may decide has no right to write what walpost reads back.
TEST_F(ParkTest, RetryGoesOnlyWhereEventsMayGo) {
  Connect();
  ParkA(100, {"a1"});
  base::DeadLetter row = dead_letters_.rows[0];
  row.seq = 99;
  row.position = "elsewhere";
  row.parked = false;
  row.send_to = "walpost.progress.test";
  dead_letters_.rows.push_back(row);
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/false);
  Look();
  Run();
  ASSERT_THAT(Rows(), SizeIs(2));
  EXPECT_EQ(dead_letters_.rows[1].decision, Decision::kNone);
  EXPECT_THAT(dead_letters_.rows[1].detail, HasSubstr("walpost.progress.test"));
}

TEST_F(ParkTest, RetriedEventWithAPartitionOfItsOwnGoesThere) {
  constexpr std::int32_t kMapped = 3;
  static_assert(kMapped != 'a' % walpost::testing::FakeSink::kPartitions, "not the key's");
  options_.outboxes[0].table.columns.partition = {"part"};
  pgoutput::Relation relation = EventsRelation();
  relation.columns.push_back({"part", outbox::type_oid::kInt4, -1, false});
  Connect(/*start=*/{}, /*announce=*/false);
  SendPayload(walpost::testing::RelationBytes(relation));
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  using walpost::testing::BinaryColumn;
  using walpost::testing::TextColumn;
  SendPayload(Begin(100));
  SendPayload(EventBytes({TextColumn("a1"), TextColumn("a"), TextColumn("orders"), TextColumn("t"),
                          BinaryColumn("payload of a1"), TextColumn(std::to_string(kMapped))}));
  SendPayload(Commit(100));
  DeliverAll();
  ASSERT_THAT(Rows(), ElementsAre("parked:a1"));
  RetryA();
  Look();
  Run();
  EXPECT_THAT(sink_.Log("orders", kMapped), SizeIs(1));
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_F(ParkTest, RetryToAnotherTopicGoesToThePartitionOfItsKeyThere) {
  Connect();
  ParkA(100, {"a1"});
  base::DeadLetter row = dead_letters_.rows[0];
  row.seq = 99;
  row.position = "elsewhere";
  row.parked = false;
  row.partition = 7;
  row.send_to = "quarantine";
  dead_letters_.rows.push_back(row);
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/false);
  Look();
  ASSERT_THAT(sink_.session().accepted, Not(IsEmpty()));
  EXPECT_EQ(sink_.session().accepted.back().topic, "quarantine");
  EXPECT_EQ(sink_.session().accepted.back().partition,
            'a' % walpost::testing::FakeSink::kPartitions);
}

}  // namespace
}  // namespace walpost::pipeline
