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
  EXPECT_THAT(Log(), ElementsAre("parked:a1", "parked:a2", "parked:a3"));
  EXPECT_EQ(log_[0].letter.reason, "record_too_large");
  EXPECT_EQ(log_[1].letter.reason, "key_parked");
  EXPECT_EQ(Confirmed(), Lsn(208));
  EXPECT_EQ(pipeline().counters().events_parked, 3U);
  EXPECT_EQ(pipeline().parked_keys(), 1U);
  ExpectAccounted();
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

TEST_F(ParkTest, EventWithoutAKeyIsALetter) {
  options_.outboxes[0].table.null_key_allowed = true;
  Connect();
  sink_.Refuse(0, Failure{FailureKind::kRecordInvalid, "no"}, "orders");
  SendPayload(Begin(100));
  SendPayload(EventBytes(walpost::testing::Tuple{
      walpost::testing::TextColumn("x1"), walpost::testing::NullColumn(),
      walpost::testing::TextColumn("orders"), walpost::testing::TextColumn("created"),
      walpost::testing::TextColumn("payload of x1")}));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Log(), ElementsAre("letter:x1"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(ParkTest, EventsBeforeItOfTheSameKeyAreDeliveredFirst) {
  Connect();
  Transaction(100, {"a1", "a2", "a3"});
  sink_.Fail(1, FailureKind::kOther);
  Settle();
  for (int attempt = 0; attempt < 3; ++attempt) {
    Settle();
    if (sink_.outstanding() == std::vector<delivery::Sequence>{0}) {
      Deliver(0);
      Settle();
    }
    sink_.Fail(1, FailureKind::kOther, "no");
  }
  Settle();
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Log(), ElementsAre("parked:a2", "parked:a3"));
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

TEST_F(ParkTest, NothingIsReadFromTheStreamBeforeTheLogIsRead) {
  serve_letters_ = false;
  pipeline().TakeConnect(now_);
  pipeline().OnConnected(facts_, now_);
  Tick();
  EXPECT_FALSE(pipeline().want_frame());
  const auto wanted = pipeline().TakeLetterRead(now_);
  ASSERT_TRUE(wanted);
  EXPECT_FALSE(pipeline().TakeLetterRead(now_)) << "one at a time";
  LettersRead part{wanted->id, absl::OkStatus(), {}, 500, /*at_end=*/false};
  pipeline().OnLettersRead(part, now_);
  EXPECT_FALSE(pipeline().want_frame());
  const auto rest = pipeline().TakeLetterRead(now_);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->from_offset, 500);
  pipeline().OnLettersRead({rest->id, absl::OkStatus(), {}, 501, /*at_end=*/true}, now_);
  EXPECT_TRUE(pipeline().want_frame());
}

TEST_F(ParkTest, LogThatDoesNotAnswerIsAskedAgainAndOneThatCannotBeReadHalts) {
  serve_letters_ = false;
  pipeline().TakeConnect(now_);
  pipeline().OnConnected(facts_, now_);
  auto wanted = pipeline().TakeLetterRead(now_);
  ASSERT_TRUE(wanted);
  pipeline().OnLettersRead({wanted->id, absl::UnavailableError("no broker"), {}, 0, false}, now_);
  EXPECT_FALSE(pipeline().TakeLetterRead(now_));
  EXPECT_FALSE(pipeline().halt());
  Advance(ParkingLot::kRetryReadAfter);
  wanted = pipeline().TakeLetterRead(now_);
  ASSERT_TRUE(wanted);
  pipeline().OnLettersRead({wanted->id, absl::NotFoundError("no such topic"), {}, 0, false}, now_);
  ExpectHalted(HaltReason::kDeadLetterFailed,
               "the dead-letter topic, which tells what keys are parked, cannot be read: no such "
               "topic; see docs/runbook.md, dead_letter_failed");
}

TEST_F(ParkTest, TooManyParkedKeysHalt) {
  options_.park_keys_max = 1;
  Connect();
  ParkA(100, {"a1"});
  sink_.Refuse(1, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(200));
  Event("b1");
  ExpectHalted(HaltReason::kDeadLetterFailed,
               "event b1 of outbox.events at 0000000000c0ffee-00000003-00000000000000c8-00000000 "
               "cannot be delivered (too large) and not be parked either: delivery.park_keys_max, "
               "1 keys, are parked; decide about some (docs/dead-letters.md), or raise it; see "
               "docs/runbook.md, dead_letter_failed");
}

}  // namespace
}  // namespace walpost::pipeline
