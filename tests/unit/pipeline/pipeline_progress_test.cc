// What is confirmed, and when an end comes, while progress is remembered.
#include "envelope/control_records.h"
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using delivery::FailureKind;
using delivery::Sequence;
using ::testing::ElementsAre;

constexpr char kTopic[] = "walpost.progress.shop";

class ProgressTest : public PipelineFixture {
 protected:
  ProgressTest() {
    options_.name = "shop";
    options_.progress_topic = kTopic;
    facts_.start_lsn = Lsn(10);
  }

  static bool IsProgress(Sequence sequence) { return sequence >= ProgressKeeper::kFirstSequence; }

  // The progress record outstanding; 0 = none.
  Sequence Outstanding() {
    for (const Sequence sequence : sink_.outstanding()) {
      if (IsProgress(sequence)) {
        return sequence;
      }
    }
    return 0;
  }

  void DeliverProgress() {
    ASSERT_NE(Outstanding(), 0U);
    Deliver(Outstanding());
  }

  void DeliverEvents() {
    for (const Sequence sequence : sink_.outstanding()) {
      if (!IsProgress(sequence)) {
        sink_.Deliver(sequence);
      }
    }
    Tick();
  }

  // The positions that Kafka has.
  std::vector<std::uint64_t> Written() {
    std::vector<std::uint64_t> positions;
    for (const auto& each : sink_.Log(kTopic, 0)) {
      EXPECT_EQ(each.key, "shop");
      positions.push_back(envelope::DecodeProgress(*each.value)->end_lsn.value());
    }
    return positions;
  }

  // Streaming, with the record of the start acknowledged.
  void Begin() {
    Connect();
    Tick();
    DeliverProgress();
    EXPECT_THAT(Written(), ElementsAre(10));
    Advance(ProgressKeeper::kEvery);
  }
};

TEST_F(ProgressTest, NumberOfDeadLettersIsRememberedAndAServerWithFewerHalts) {
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  Begin();
  sink_.Reject(0, {FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  DeliverEvents();
  Advance(ProgressKeeper::kEvery);
  DeliverProgress();
  const auto progress = envelope::DecodeProgress(*sink_.Log(kTopic, 0).back().value);
  ASSERT_TRUE(progress.ok());
  EXPECT_EQ(progress->end_lsn, Lsn(108));
  EXPECT_EQ(progress->dead_letters, 1U);
  Restart();
  facts_.progress = *progress;
  dead_letters_.rows.clear();
  dead_letters_.written = 0;
  Connect(Lsn(), /*announce=*/false);
  ExpectHalted(HaltReason::kTimelineChanged, "wrote 1 rows");
}

TEST_F(ProgressTest, DeliveredTransactionIsConfirmedOnlyAfterItsProgress) {
  Begin();
  Transaction(100, {"a1"});
  DeliverEvents();
  EXPECT_EQ(pipeline().tracker().safe_lsn(), Lsn(108));
  EXPECT_LE(Confirmed(), Lsn(10));
  Advance(milliseconds(20'000));
  EXPECT_LE(Confirmed(), Lsn(10)) << "however long it takes";
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_THAT(Written(), ElementsAre(10, 108));
  ExpectAccounted();
}

TEST_F(ProgressTest, KeepalivePositionIsConfirmedOnlyAfterItsProgress) {
  Begin();
  Keepalive(500);
  EXPECT_LE(Confirmed(), Lsn(10));
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(500));
}

// A commit of any table may wait for it, when walpost has become a synchronous standby.
TEST_F(ProgressTest, PositionThatCannotBeNotedBringsALookAlsoWhileTheLogGoesOn) {
  Begin();
  Keepalive(500);
  Advance(Looks::kLookAfterStall / 2);
  EXPECT_FALSE(pipeline().TakeLook(now_));
  Keepalive(600);
  Advance(Looks::kLookAfterStall / 2);
  EXPECT_TRUE(pipeline().TakeLook(now_));
}

TEST_F(ProgressTest, EventsGoOnWhileProgressIsOutstanding) {
  Begin();
  Transaction(100, {"a1"});
  DeliverEvents();
  Transaction(200, {"b1"});
  DeliverEvents();
  EXPECT_EQ(pipeline().tracker().safe_lsn(), Lsn(208));
  EXPECT_TRUE(pipeline().want_frame());
  Advance(milliseconds(5'000));
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(108)) << "one at a time";
  Advance(ProgressKeeper::kEvery);
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(208));
}

TEST_F(ProgressTest, SessionThatFailsHasItSubmittedAgain) {
  Begin();
  Transaction(100, {"a1"});
  DeliverEvents();
  sink_.FailSession("fatal");
  Settle();
  EXPECT_LE(Confirmed(), Lsn(10));
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(ProgressTest, InCarefulModeItHasItsTurn) {
  Begin();
  Transaction(100, {"a1"});
  DeliverEvents();
  Transaction(200, {"a2"});
  Transaction(300, {"a3"});
  Transaction(400, {"a4"});
  sink_.FailSession("fatal");
  Settle();
  EXPECT_EQ(sink_.session().mode, delivery::Sink::Mode::kOneAtATime);
  EXPECT_NE(Outstanding(), 0U) << "beside the events";
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(108));
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3", "a4"));
}

TEST_F(ProgressTest, TopicThatIsGoneStopsNoDeliveryAndHaltsAfterAWhile) {
  Begin();
  Transaction(100, {"a1"});
  DeliverEvents();
  sink_.Fail(Outstanding(), FailureKind::kTopicUnknown, "topic is gone");
  Settle();
  Transaction(200, {"b1"});
  DeliverEvents();
  EXPECT_EQ(pipeline().tracker().safe_lsn(), Lsn(208));
  EXPECT_LE(Confirmed(), Lsn(10));
  for (int i = 0; i < 13 && !pipeline().halted(); ++i) {
    Advance(ProgressKeeper::kRetryRejectedAfter);
    Tick();
    if (Outstanding() != 0) {
      sink_.Fail(Outstanding(), FailureKind::kTopicUnknown, "topic is gone");
      Settle();
    }
  }
  ExpectHalted(HaltReason::kProgressUnreadable, "topic is gone");
  EXPECT_LE(confirmed_, Lsn(10));
}

TEST_F(ProgressTest, StopWaitsForTheLastProgressAndConfirmsIt) {
  Begin();
  Keepalive(50);
  DeliverProgress();
  Transaction(100, {"a1"});
  Transaction(200, {"a2"});
  pipeline().Stop(now_);
  DeliverEvents();
  EXPECT_TRUE(pipeline().connected());
  DeliverProgress();
  EXPECT_THAT(Written(), ElementsAre(10, 50, 208)) << "at once, not after a second";
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(confirmed_, Lsn(208));
  Settle();
  EXPECT_TRUE(pipeline().finished());
}

TEST_F(ProgressTest, StopWaitsForProgressNoLongerThanItsTime) {
  Begin();
  Transaction(100, {"a1"});
  pipeline().Stop(now_);
  DeliverEvents();
  Advance(options_.shutdown_timeout - milliseconds(1));
  EXPECT_TRUE(pipeline().connected());
  Advance(milliseconds(1));
  EXPECT_FALSE(pipeline().connected());
  EXPECT_LE(confirmed_, Lsn(10));
}

TEST_F(ProgressTest, HaltConfirmsWhatCameBeforeIt) {
  Begin();
  Transaction(100, {"a1"});
  DeliverEvents();
  SendPayload("?");
  EXPECT_TRUE(pipeline().connected()) << "until progress is written";
  DeliverProgress();
  EXPECT_EQ(confirmed_, Lsn(108));
  ExpectHalted(HaltReason::kProtocolError, "");
}

TEST_F(ProgressTest, ServerThatAsksGetsItsProgressAtOnce) {
  Begin();
  Keepalive(500);
  DeliverProgress();
  Keepalive(600, /*reply_requested=*/true);
  EXPECT_NE(Outstanding(), 0U);
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(600));
}

TEST_F(ProgressTest, StoppingServerIsNotHeldByProgressThatDoesNotCome) {
  Begin();
  Keepalive(500);
  for (int i = 0; i < 10; ++i) {
    Keepalive(500, /*reply_requested=*/true);
    EXPECT_TRUE(pipeline().connected()) << "it may come any moment";
  }
  Advance(ProgressKeeper::kLateAfter);
  for (int i = 0; i < StatusClock::kStoppingRequests && pipeline().connected(); ++i) {
    Keepalive(500, /*reply_requested=*/true);
  }
  EXPECT_FALSE(pipeline().connected());
}

TEST_F(ProgressTest, RememberedProgressIsTheStart) {
  base::Progress before;
  before.end_lsn = Lsn(50);
  facts_.progress = before;
  facts_.start_lsn = Lsn(50);
  Connect();
  Tick();
  DeliverProgress();  // a record of this connection
  EXPECT_EQ(pipeline().remembered_progress()->end_lsn, Lsn(50));
  Transaction(100, {"a1"});
  DeliverEvents();
  Advance(ProgressKeeper::kEvery);
  DeliverProgress();
  EXPECT_EQ(Confirmed(), Lsn(108));
}

class PlannedReconnectTest : public ProgressTest {
 protected:
  static constexpr milliseconds kInterval{20'000};

  PlannedReconnectTest() { options_.reconnect_interval = kInterval; }

  // With what the server had.
  void CatchUp() {
    Begin();
    Keepalive(10);
  }
};

// The next connection is made only when Kafka answers.
TEST_F(PlannedReconnectTest, StreamIsEndedOnlyWhenKafkaHasTakenARecordSinceThen) {
  CatchUp();
  Advance(kInterval);
  EXPECT_LE(pipeline().NextDeadline(), now_.mono);
  Tick();
  ASSERT_NE(Outstanding(), 0U) << "written again, to hear of Kafka";
  Advance(ProgressKeeper::kEvery);
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  while (TakeStatus()) {
  }
  EXPECT_GT(pipeline().NextDeadline(), now_.mono) << "it does not spin";
  Transaction(100, {"a1"});
  DeliverEvents();
  EXPECT_EQ(pipeline().counters().events_delivered, 1U) << "which goes on";
  DeliverProgress();
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_THAT(Written(), ElementsAre(10, 10));
}

TEST_F(PlannedReconnectTest, RecordOfBeforeSaysNothing) {
  CatchUp();
  Keepalive(500);
  ASSERT_NE(Outstanding(), 0U);
  Advance(kInterval);
  DeliverProgress();
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  Tick();
  Tick();
  DeliverProgress();
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_THAT(Written(), ElementsAre(10, 500, 500));
}

// An event waits all the time, so the reconnect waits, and Kafka may go away meanwhile.
TEST_F(PlannedReconnectTest, RecordOfWhenItWasDueSaysNothingAMinuteLater) {
  CatchUp();
  Transaction(100, {"a1"});
  Advance(kInterval);
  Tick();
  DeliverProgress();
  Advance(Pipeline::kReconnectPatience);
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  Tick();
  ASSERT_NE(Outstanding(), 0U);
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  DeliverProgress();
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
}

// However long Kafka takes: when it answers counts.
TEST_F(PlannedReconnectTest, SlowKafkaKeepsItFromNothing) {
  CatchUp();
  Advance(kInterval);
  Tick();
  ASSERT_NE(Outstanding(), 0U);
  Advance(milliseconds(30'000));
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  DeliverProgress();
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
}

// Between two long transactions there may be no time for an answer.
TEST_F(PlannedReconnectTest, KafkaIsHeardOfWithinATransactionToo) {
  CatchUp();
  SendPayload(pipeline::Begin(100));
  Advance(kInterval);
  Tick();
  DeliverProgress();
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  Advance(milliseconds(6'000));
  Tick();
  ASSERT_NE(Outstanding(), 0U) << "the answer is old by now";
}

TEST_F(PlannedReconnectTest, IsShownWhenItTakesLong) {
  CatchUp();
  Advance(kInterval);
  Tick();
  DeliverProgress();
  ASSERT_EQ(last_command_, StreamCommand::kFinish);
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  EXPECT_EQ(pipeline().state(), base::State::kStreaming);
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + Pipeline::kShowReconnectAfter);
  Advance(Pipeline::kShowReconnectAfter);
  EXPECT_EQ(pipeline().state(), base::State::kReconnecting);
}

}  // namespace
}  // namespace walpost::pipeline
