// delivery.on_undeliverable: park.
#include "park_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using delivery::Failure;
using delivery::FailureKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(ParkTest, EventsOfTheKeyFollowTheUndeliverableOneAndOthersGoOn) {
  Connect();
  ParkA(100, {"a1", "b1", "a2"});
  Transaction(200, {"a3", "b2"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Visible('b'), ElementsAre("b1", "b2"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2", "parked:a3"));
  EXPECT_EQ(dead_letters_.rows[0].reason, "record_too_large");
  EXPECT_EQ(dead_letters_.rows[1].reason, "key_parked");
  EXPECT_EQ(Confirmed(), Lsn(208));
  EXPECT_EQ(pipeline().counters().events_parked, 3U);
  EXPECT_EQ(pipeline().parked_keys(), 1U);
  EXPECT_EQ(pipeline().open_dead_letters(), 3U);
  ExpectAccounted();
}

// Its own row may have been deleted when its key is released.
TEST_F(ParkTest, LargeEventWithWhichNothingIsWrongIsKeptWhole) {
  Connect();
  ParkA(100, {"a1"});
  SendPayload(Begin(200));
  SendPayload(EventBytes(
      {walpost::testing::TextColumn("a2"), walpost::testing::TextColumn("a"),
       walpost::testing::TextColumn("orders"), walpost::testing::TextColumn("created"),
       walpost::testing::BinaryColumn(std::string(base::DeadLetter::kRecordBytesMax + 1, 'x'))}));
  SendPayload(Commit(200));
  Run();
  ASSERT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
  EXPECT_FALSE(dead_letters_.rows[1].truncated_bytes);
  EXPECT_GT(dead_letters_.rows[1].value.value_or("").size(), base::DeadLetter::kRecordBytesMax);
}

TEST_F(ParkTest, KeyOfAnotherTopicIsAnotherKey) {
  Connect();
  ParkA(100, {"a1"});
  SendPayload(Begin(200));
  SendPayload(EventBytes("a2", "a", "returns"));
  SendPayload(Commit(200));
  DeliverAll();
  EXPECT_THAT(sink_.Log("returns", 'a' % walpost::testing::FakeSink::kPartitions), SizeIs(1));
}

// Whoever parks a key must not make everybody wait for each topic that does not exist.
TEST_F(ParkTest, EventsOfOtherTopicsGoOnWhileOneIsLookedUpAndAKeyIsParked) {
  Connect();
  ParkA(100, {"a1"});
  sink_.SetPending("returns", true);
  SendPayload(Begin(200));
  SendPayload(EventBytes("c1", "c", "returns"));
  Settle();
  ASSERT_TRUE(pipeline().want_frame());
  SendPayload(EventBytes("b1", "b", "orders"));
  SendPayload(EventBytes("a2", "a", "orders"));
  SendPayload(EventBytes("c2", "c", "returns"));
  sink_.DeliverAll();
  Settle();
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  sink_.SetPending("returns", false);
  Settle();
  SendPayload(Commit(200));
  DeliverAll();
  EXPECT_EQ(sink_.Log("returns", 'c' % walpost::testing::FakeSink::kPartitions).size(), 2U);
  EXPECT_EQ(Confirmed(), Lsn(208));
}

TEST_F(ParkTest, KeyIsParkedWhileAnotherTopicIsLookedUp) {
  Connect();
  sink_.SetPending("returns", true);
  SendPayload(Begin(100));
  SendPayload(EventBytes("c1", "c", "returns"));
  Settle();
  sink_.Reject(pipeline().tracker().next_sequence(),
               Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  Event("a1");
  SendPayload(EventBytes("c2", "c", "returns"));
  Event("a2");
  sink_.DeliverAll();
  Settle();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
}

TEST_F(ParkTest, KeyIsReleasedWhileAnotherTopicIsLookedUp) {
  Connect();
  ParkA(100, {"a1", "a2"});
  sink_.SetPending("returns", true);
  SendPayload(Begin(200));
  SendPayload(EventBytes("c1", "c", "returns"));
  Settle();
  RetryA();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

// Who writes events chooses how long it is, and nothing can overtake it.
TEST_F(ParkTest, EventWhoseTopicIsNoTopicsNameParksNothingAndIsCut) {
  Connect();
  SendPayload(Begin(100));
  SendPayload(EventBytes("x1", "x", std::string(100'000, 't')));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Rows(), ElementsAre("dead:x1"));
  EXPECT_LT(dead_letters_.rows[0].topic.size(), 2 * base::DeadLetter::kTextBytesMax);
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

// Nor does it hold up those who may write there.
TEST_F(ParkTest, EventForATopicThatItMayNotGoToParksNothing) {
  using walpost::testing::TextColumn;
  options_.event_bytes_max = 1'000;
  options_.outboxes[0].table.topics.allowed = {"orders"};
  Connect();
  SendPayload(Begin(100));
  SendPayload(EventBytes("x1", "a", "returns"));
  SendPayload(EventBytes({TextColumn("x2"), TextColumn("a"), TextColumn("returns"), TextColumn("t"),
                          walpost::testing::BinaryColumn(std::string(10'000, 'x'))}));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Rows(), ElementsAre("dead:x1", "dead:x2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, EventWithoutAKeyParksNothing) {
  options_.outboxes[0].table.null_key_allowed = true;
  Connect();
  sink_.Reject(0, Failure{FailureKind::kRecordInvalid, "no"}, "orders");
  SendPayload(Begin(100));
  SendPayload(EventBytes(walpost::testing::Tuple{
      walpost::testing::TextColumn("x1"), walpost::testing::NullColumn(),
      walpost::testing::TextColumn("orders"), walpost::testing::TextColumn("created"),
      walpost::testing::TextColumn("payload of x1")}));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Rows(), ElementsAre("dead:x1"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, EventsBeforeItOfTheSameKeyAreDeliveredFirst) {
  Connect();
  Transaction(100, {"a1", "a2", "a3"});
  sink_.Fail(1, FailureKind::kRecordInvalid);
  Settle();
  Deliver(0);
  Settle();
  sink_.Fail(1, FailureKind::kRecordInvalid, "no");
  Settle();
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a2", "parked:a3"));
}

TEST_F(ParkTest, KeysParkedBeforeTheStartAreParkedStill) {
  Connect();
  ParkA(100, {"a1", "a2"});
  Restart();
  Connect();
  Transaction(200, {"a3", "b1"});
  DeliverAll();
  EXPECT_EQ(pipeline().counters().events_parked, 1U);
  EXPECT_EQ(pipeline().counters().events_delivered, 1U);
}

TEST_F(ParkTest, KeysParkedBeforeAnotherPolicyAreParkedStill) {
  Connect();
  ParkA(100, {"a1"});
  Restart();
  options_.on_undeliverable = OnUndeliverable::kHalt;
  Connect();
  Transaction(200, {"a2", "b1"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
}

TEST_F(ParkTest, RowOfAParkedKeyThatMakesNoRecordIsParkedUnderAnotherPolicyToo) {
  using walpost::testing::TextColumn;
  options_.event_bytes_max = 1'000;
  Connect();
  ParkA(100, {"a1"});
  Restart();
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  Connect();
  SendPayload(Begin(200));
  for (const char* key : {"a", "b"}) {
    SendPayload(
        EventBytes({TextColumn(std::string(key) + "2"), TextColumn(key), TextColumn("orders"),
                    TextColumn("t"), walpost::testing::BinaryColumn(std::string(10'000, 'x'))}));
  }
  SendPayload(Commit(200));
  DeliverAll();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2", "dead:b2"));
}

TEST_F(ParkTest, NothingIsReadFromTheStreamBeforeTheParkedKeysAreKnown) {
  serve_dead_letters_ = false;
  facts_.may_have_dead_letters = true;
  pipeline().TakeConnect(now_);
  pipeline().OnConnected(facts_, now_);
  Tick();
  EXPECT_FALSE(pipeline().want_frame());
  const auto wanted = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(wanted);
  EXPECT_EQ(wanted->kind, DeadLetterRequest::Kind::kLoad);
  EXPECT_FALSE(pipeline().TakeDeadLetterRequest(now_)) << "one at a time";
  pipeline().OnDeadLetterReply(
      {.id = wanted->id, .status = {}, .keys = {{7, "", "orders", "a"}}, .open_rows = 2}, now_);
  EXPECT_FALSE(pipeline().want_frame());
  const auto rest = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->seq, 7);
  pipeline().OnDeadLetterReply({.id = rest->id, .status = {}, .at_end = true, .open_rows = 2},
                               now_);
  base::DeadLetter row;
  row.seq = 7;
  row.topic = "orders";
  row.key = "a";
  row.parked = true;
  dead_letters_.rows = {row, row};
  dead_letters_.rows[1].key = "written meanwhile";
  ServeDeadLetters();  // which rows are there, and the keys once more
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_EQ(pipeline().parked_keys(), 2U);
}

TEST_F(ParkTest, ReplyToARequestOfTheConnectionBeforeCountsForNothing) {
  Connect();
  serve_dead_letters_ = false;
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  Transaction(100, {"a1"});
  const auto wanted = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(wanted);
  End(base::StreamEnd::Kind::kLost);
  Connect(Lsn(100), /*announce=*/false);
  pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*wanted), now_);
  EXPECT_EQ(pipeline().counters().events_parked, 0U);
  ServeDeadLetters();
  EXPECT_EQ(pipeline().counters().events_parked, 1U);
  EXPECT_THAT(Rows(), ElementsAre("parked:a1"));
}

TEST_F(ParkTest, TooManyOpenRowsHaltAlsoForWhatFollows) {
  options_.dead_letters_max = 1;
  Connect();
  ParkA(100, {"a1"});
  SendPayload(Begin(200));
  Event("a2");
  ExpectHalted(HaltReason::kDeadLetterFailed, "its key is parked");
}

TEST_F(ParkTest, RepeatsOfRowsThatAreThereNeedNoRoom) {
  options_.dead_letters_max = 3;
  Connect();
  ParkA(100, {"a1", "a2"});
  Restart();
  Connect();
  ParkA(100, {"a1", "a2"});  // it was not confirmed
  EXPECT_FALSE(pipeline().halt());
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(ParkTest, FirstRowOfAKeyWaitsForEventsThatAreStillOnTheirWay) {
  Connect();
  Transaction(100, {"a1"});  // not acknowledged yet
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(200));
  Event("a2");
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0));
  EXPECT_THAT(Rows(), IsEmpty());
  RejectAlone(0);
  Run();
  ASSERT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2")) << "not a2 first";
}

TEST_F(ParkTest, RowThatMakesNoRecordWaitsForEventsOfItsTopicThatAreStillOnTheirWay) {
  using walpost::testing::TextColumn;
  options_.event_bytes_max = 1'000;
  Connect();
  Transaction(100, {"a1"});  // not acknowledged yet
  SendPayload(Begin(200));
  SendPayload(EventBytes({TextColumn("a2"), TextColumn("a"), TextColumn("orders"), TextColumn("t"),
                          walpost::testing::BinaryColumn(std::string(10'000, 'x'))}));
  Settle();
  EXPECT_THAT(Rows(), IsEmpty());
  RejectAlone(0);
  Run();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
}

// Its key is parked already, so nothing else keeps the row.
TEST_F(ParkTest, RowThatMakesNoRecordWaitsForEarlierEventsOfItsKeyThatWaitWithTheirTopic) {
  options_.event_bytes_max = 1'000;
  Connect();
  ParkA(100, {"a1"});
  sink_.SetPending("orders", true);
  SendPayload(Begin(200));
  Event("b1");  // its topic is looked up
  Event("a2");
  SendPayload(EventBytes({walpost::testing::TextColumn("a3"), walpost::testing::TextColumn("a"),
                          walpost::testing::TextColumn("orders"), walpost::testing::TextColumn("t"),
                          walpost::testing::BinaryColumn(std::string(10'000, 'x'))}));
  Settle();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1"));
  sink_.SetPending("orders", false);
  Event("a4");
  SendPayload(Commit(200));
  Run();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2", "parked:a3", "parked:a4"));
  EXPECT_EQ(Confirmed(), Lsn(208));
}

TEST_F(ParkTest, RowThatMakesNoRecordDoesNotWaitForAnEventOfItsKeyInAnotherTopic) {
  options_.event_bytes_max = 1'000;
  Connect();
  ParkA(100, {"a1"});
  sink_.SetPending("returns", true);
  SendPayload(Begin(200));
  SendPayload(EventBytes("a2", "a", "returns"));
  SendPayload(EventBytes({walpost::testing::TextColumn("a3"), walpost::testing::TextColumn("a"),
                          walpost::testing::TextColumn("orders"), walpost::testing::TextColumn("t"),
                          walpost::testing::BinaryColumn(std::string(10'000, 'x'))}));
  SendPayload(Commit(200));
  Run();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a3"));
}

TEST_F(ParkTest, RowThatWaitedWhenAnotherInstanceWentOnIsForgotten) {
  Connect();
  Transaction(100, {"a1"});
  serve_dead_letters_ = false;
  RejectAlone(0);
  End(base::StreamEnd::Kind::kLost);
  base::Progress others;
  others.end_lsn = Lsn(508);
  others.last_transactions = {{Lsn(500), base::Xid{77}, kCommitTime}};
  facts_.progress = others;
  facts_.confirmed_flush_lsn = facts_.start_lsn = Lsn(508);
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  ASSERT_EQ(last_command_, StreamCommand::kClose);
  Advance(milliseconds(1));
  serve_dead_letters_ = true;
  Connect();
  Transaction(600, {"a6"});
  Run();
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_THAT(Visible('a'), ElementsAre("a6"));
}

TEST_F(ParkTest, ResumedPipelineCountsOpenRowsAnew) {
  Connect();
  ParkA(100, {"a1"});
  ASSERT_EQ(pipeline().open_dead_letters(), 1U);
  SendFrame("x");
  Advance(options_.shutdown_timeout);
  pipeline().Resume(now_);
  EXPECT_EQ(pipeline().open_dead_letters(), 0U);
}

TEST_F(ParkTest, EventBeforeTheFirstParkedOneGoesByItself) {
  Connect();
  Transaction(100, {"a1"});
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(200));
  Event("a2");
  sink_.Fail(0, FailureKind::kSessionEnded);
  Settle();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a2"));
}

TEST_F(ParkTest, RowsThatWaitForAnUndeliveredEventOfTheirTopicDoNotStopReading) {
  options_.event_bytes_max = 1'000;
  options_.unknown_topic_wait = std::chrono::minutes(10);
  Connect();
  sink_.SetPending("orders", true);
  Transaction(100, {"c1"});
  SendPayload(Begin(200));
  const std::string large(2'000, 'x');
  for (std::size_t i = 0; i < 2 * DeadLetters::kWaitingMax; ++i) {
    SendPayload(
        EventBytes({testing::TextColumn(std::to_string(i)),
                    testing::TextColumn("key" + std::to_string(i)), testing::TextColumn("orders"),
                    testing::TextColumn("created"), testing::BinaryColumn(large)}));
  }
  SendPayload(EventBytes("r1", "r", "returns"));
  SendPayload(Commit(200));
  EXPECT_THAT(sink_.outstanding(), SizeIs(1)) << "r1";
  EXPECT_THAT(Rows(), IsEmpty());
}

// At each connect all parked keys are read.
TEST_F(ParkTest, EventWithAVeryLongKeyParksNone) {
  Connect();
  sink_.Reject(pipeline().tracker().next_sequence(),
               delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(100));
  SendPayload(EventBytes("a1", std::string(base::DeadLetter::kParkedKeyBytesMax + 1, 'a')));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Rows(), ElementsAre("dead:a1"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, MessageLeavesItsKeyWhenAnAnswerThatMustLastHasLasted) {
  options_.unknown_topic_wait = 2 * DeadLetters::kRetryRejectedAfter;
  Connect();
  ParkA(100, {"a1", "a2"});
  dead_letters_.rows[0].source = "message:shop";
  RetryA();
  sink_.Reject(DeadLetters::kFirstSequence + 1,
               Failure{delivery::FailureKind::kRecordTooLarge, "no", /*must_last=*/true}, "orders");
  Look();
  Run();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(dead_letters_.rows[0].parked && dead_letters_.rows[0].retry()) << i;
    Advance(DeadLetters::kRetryRejectedAfter);
    Run();
  }
  EXPECT_FALSE(dead_letters_.rows[0].parked);
}

// Whoever may emit could make one that no topic takes.
TEST_F(ParkTest, MessageThatLeavesItsKeyShortensTheTimeOfNoOther) {
  options_.unknown_topic_wait = 2 * DeadLetters::kRetryRejectedAfter;
  Connect();
  ParkA(100, {"a1", "a2"});
  for (base::DeadLetter& row : dead_letters_.rows) {
    row.source = "message:shop";
  }
  RetryA();
  sink_.Reject(DeadLetters::kFirstSequence + 1,
               Failure{delivery::FailureKind::kPartitionUnknown, "no"}, "orders");
  sink_.Reject(DeadLetters::kFirstSequence + 2,
               Failure{delivery::FailureKind::kRecordTooLarge, "no", /*must_last=*/true}, "orders");
  const auto try_again = [&] {
    Look();
    Run();
    Advance(DeadLetters::kRetryRejectedAfter);
    Run();
  };
  for (int i = 0; i < 5 && dead_letters_.rows[0].parked; ++i) {
    try_again();
  }
  EXPECT_FALSE(dead_letters_.rows[0].parked);
  try_again();
  EXPECT_TRUE(dead_letters_.rows[1].parked);
  for (int i = 0; i < 5 && dead_letters_.rows[1].parked; ++i) {
    try_again();
  }
  EXPECT_FALSE(dead_letters_.rows[1].parked);
}

}  // namespace
}  // namespace walpost::pipeline
