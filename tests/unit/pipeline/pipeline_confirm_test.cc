// When which position is confirmed (guarantee G5), and back-pressure.
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using base::State;
using delivery::FailureKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using ConfirmTest = PipelineFixture;

TEST_F(ConfirmTest, NothingIsConfirmedWhileItsEventIsUndelivered) {
  Connect();
  Transaction(100, {"a1"});
  EXPECT_EQ(Confirmed(), Lsn());
  Advance(milliseconds(20'000));
  EXPECT_EQ(Confirmed(), Lsn()) << "however long it takes";
}

TEST_F(ConfirmTest, DeliveredTransactionIsConfirmedAtItsEndLsn) {
  Connect();
  Transaction(100, {"a1", "b1"});
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  EXPECT_EQ(pipeline().state(), State::kStreaming);
  ExpectAccounted();
}

TEST_F(ConfirmTest, EventDeliveredBeforeItsCommitArrivesConfirmsNothing) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn());
  SendPayload(Commit(100));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(ConfirmTest, LaterTransactionDeliveredFirstWaitsForTheEarlier) {
  Connect();
  Transaction(100, {"a1"});
  Transaction(200, {"b1"});
  Transaction(300, {});
  Deliver(1);
  EXPECT_EQ(Confirmed(), Lsn());
  Deliver(0);
  EXPECT_EQ(Confirmed(), Lsn(308));
}

TEST_F(ConfirmTest, StatusReportsWhatWasReceivedAsWritten) {
  Connect();
  Transaction(100, {"a1"});
  Keepalive(500, /*reply_requested=*/true);
  const auto status = TakeStatus();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->flush, Lsn());
  EXPECT_EQ(status->apply, Lsn());
  EXPECT_EQ(status->write, Lsn(500));
  EXPECT_EQ(status->client_time, now_.wall);
}

TEST_F(ConfirmTest, KeepalivePositionIsConfirmedWhenNothingIsInFlightBeforeIt) {
  Connect();
  Keepalive(500);
  EXPECT_EQ(Confirmed(), Lsn(500));
  Transaction(600, {"a1"});
  Keepalive(700);
  EXPECT_EQ(Confirmed(), Lsn(500));
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn(700));
}

TEST_F(ConfirmTest, KeepaliveInsideATransactionConfirmsNothingOfIt) {
  Connect();
  Keepalive(500);
  SendPayload(Begin(600));
  Event("a1");
  Keepalive(900);
  EXPECT_LE(Confirmed(), Lsn(600));
  Deliver(0);
  EXPECT_LE(Confirmed(), Lsn(600)) << "a2 may still come, and 600 itself must come again";
  Event("a2");
  SendPayload(Commit(600));
  EXPECT_LE(Confirmed(), Lsn(600));
  Deliver(1);
  EXPECT_EQ(Confirmed(), Lsn(608));
}

TEST_F(ConfirmTest, RequestedReplyIsGivenAtOnceWhateverKafkaDoes) {
  Connect();
  sink_.SetNotNow(true);
  Keepalive(90, /*reply_requested=*/true);
  ASSERT_TRUE(TakeStatus());
  EXPECT_FALSE(TakeStatus()) << "one request, one reply";
}

TEST_F(ConfirmTest, IdleStreamIsKeptAliveByStatusesOfItsOwn) {
  Connect();
  int statuses = 0;
  for (int i = 0; i < 60; ++i) {
    Advance(milliseconds(1'000));
    statuses += TakeStatus() ? 1 : 0;
    Keepalive(100);
  }
  EXPECT_GE(statuses, 6);
  EXPECT_LE(statuses, 8);
}

TEST_F(ConfirmTest, FailedEventHoldsThePositionUntilItIsDelivered) {
  Connect();
  Transaction(100, {"a1", "b1"});
  Keepalive(500);
  sink_.Deliver(1);
  sink_.Fail(0, FailureKind::kSessionEnded);
  Tick();
  EXPECT_EQ(Confirmed(), Lsn());
  Settle();
  EXPECT_EQ(Confirmed(), Lsn());
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn(500));
}

// --- Back-pressure ---

class BackPressureTest : public PipelineFixture {
 protected:
  void SetUp() override {
    options_.in_flight_bytes_max = 1'200;  // two small events
    Connect();
  }

  void Fill() {
    SendPayload(Begin(100));
    Event("a1");
    EXPECT_TRUE(pipeline().want_frame());
    Event("b1");
  }

  // Long after the commit of its transaction, by the server's clock.
  void LateEvent(const std::string& id) {
    SendFrame(walpost::testing::XLogDataFrame(EventBytes(id, id.substr(0, 1)), Lsn(1), Lsn(1),
                                              kCommitTime + ServerPings::kLate));
  }
};

// Failure 63.
TEST_F(BackPressureTest, ReadingStopsAtTheLimitAndGoesOnBelowIt) {
  Fill();
  EXPECT_FALSE(pipeline().want_frame());
  Deliver(0);
  EXPECT_TRUE(pipeline().want_frame());
  SendPayload(Commit(100));
  EXPECT_EQ(Confirmed(), Lsn());
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn(108));
}

// Failure 77.
TEST_F(BackPressureTest, ReadingStopsWhileARecordWaitsForTheSink) {
  sink_.SetNotNow(true);
  SendPayload(Begin(100));
  Event("a1");
  EXPECT_FALSE(pipeline().want_frame());
  while (TakeStatus()) {
  }
  EXPECT_GT(pipeline().NextDeadline(), now_.mono) << "the loop would turn without a pause";
  EXPECT_THAT(sink_.outstanding(), IsEmpty());
  sink_.SetNotNow(false);
  Tick();
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0));
}

// Failures 6, 62.
TEST_F(BackPressureTest, StatusesGoOnWhileReadingIsPaused) {
  Fill();
  for (int i = 0; i < 12; ++i) {
    Advance(milliseconds(10'000));
    EXPECT_TRUE(pipeline().TakePing(now_));
    pipeline().OnPing(base::PingAnswer::kOurs, now_.mono, now_);
    EXPECT_TRUE(TakeStatus()) << i;
  }
  DeliverAll();
  Tick();
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_TRUE(pipeline().connected()) << "the silence is ours, not the server's";
}

// The shortest that is documented: each answer shows for a second only that the slot is ours.
TEST_F(BackPressureTest, ShortTimeoutOfTheServerSuspendsNothingWhileItAnswers) {
  End(base::StreamEnd::Kind::kLost);
  facts_.wal_sender_timeout_ms = 1'000;
  Connect();
  Fill();
  for (int i = 0; i < 100; ++i) {
    Advance(milliseconds(100));
    if (pipeline().TakePing(now_)) {
      const base::MonotonicTime asked_at = now_.mono;
      Advance(milliseconds(100));
      pipeline().OnPing(base::PingAnswer::kOurs, asked_at, now_);
    }
    Settle();
    ASSERT_FALSE(sink_.closed()) << i;
  }
}

TEST_F(BackPressureTest, LongPauseIsShownAndCounted) {
  Fill();
  Advance(milliseconds(999));
  EXPECT_EQ(pipeline().state(), State::kStreaming);
  Advance(milliseconds(1));
  EXPECT_EQ(pipeline().state(), State::kBackpressured);
  EXPECT_EQ(pipeline().counters().backpressure_ms, 1'000U);
  DeliverAll();
  EXPECT_EQ(pipeline().state(), State::kStreaming);
  Advance(milliseconds(500));
  EXPECT_EQ(pipeline().counters().backpressure_ms, 1'000U);
}

TEST_F(BackPressureTest, ServerIsPingedEveryTwoSecondsWhileReadingIsPaused) {
  EXPECT_FALSE(pipeline().TakePing(now_));
  Fill();
  Advance(milliseconds(1'999));
  EXPECT_FALSE(pipeline().TakePing(now_));
  Advance(milliseconds(1));
  EXPECT_TRUE(pipeline().TakePing(now_));
  EXPECT_FALSE(pipeline().TakePing(now_));
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + milliseconds(2'000));
  Advance(milliseconds(2'000));
  EXPECT_TRUE(pipeline().TakePing(now_));
  DeliverAll();
  Advance(milliseconds(2'000));
  EXPECT_FALSE(pipeline().TakePing(now_));
}

// A slow broker takes a little again and again, so no pause is long.
TEST_F(BackPressureTest, PausesThatAreShortDelayNoPing) {
  SendPayload(Begin(100));
  int pings = 0;
  for (int i = 0; i < 10; ++i) {
    LateEvent("a" + std::to_string(i));
    LateEvent("b" + std::to_string(i));
    EXPECT_FALSE(pipeline().want_frame());
    Advance(milliseconds(1'000));
    pings += pipeline().TakePing(now_) ? 1 : 0;
    DeliverAll();
  }
  EXPECT_EQ(pings, 5);
}

TEST_F(BackPressureTest, ServerIsPingedWhileItsChangesAreLate) {
  SendPayload(Begin(100));
  Event("a1");
  DeliverAll();
  Advance(milliseconds(2'000));
  EXPECT_FALSE(pipeline().TakePing(now_));
  LateEvent("a2");
  DeliverAll();
  Advance(milliseconds(2'000));
  EXPECT_TRUE(pipeline().TakePing(now_));
  Advance(ServerPings::kLateFor);
  EXPECT_FALSE(pipeline().TakePing(now_)) << "nothing has come for long";
}

TEST_F(BackPressureTest, ServerIsPingedUntilWhatItHadIsRead) {
  End(base::StreamEnd::Kind::kLost);
  facts_.server_wal_lsn = Lsn(9'000);
  Connect();
  Advance(milliseconds(2'000));
  EXPECT_TRUE(pipeline().TakePing(now_));
  Keepalive(9'000);
  Advance(milliseconds(2'000));
  EXPECT_FALSE(pipeline().TakePing(now_));
}

TEST_F(BackPressureTest, ServerThatNobodyReachesIsLeftWhileNothingIsRead) {
  Fill();
  const auto unanswered = [this](milliseconds time) {
    for (milliseconds passed(0); passed < time; passed += ServerPings::kEvery) {
      Advance(ServerPings::kEvery);
      ASSERT_TRUE(pipeline().TakePing(now_));
      pipeline().OnPing(base::PingAnswer::kNone, now_.mono, now_);
    }
  };
  unanswered(milliseconds(28'000));
  pipeline().OnPing(base::PingAnswer::kServes, now_.mono, now_);
  unanswered(milliseconds(30'000));
  EXPECT_TRUE(pipeline().connected()) << "it answered once";
  Advance(ServerPings::kEvery);
  pipeline().OnPing(base::PingAnswer::kNone, now_.mono, now_);
  EXPECT_FALSE(pipeline().connected());
  EXPECT_NE(pipeline().last_error(), "");
  DeliverAll();
}

// Its time-out may be long, so that no answer comes that could be judged.
TEST_F(BackPressureTest, ServerThatLeavesAQuestionOpenIsLeftWhileNothingIsRead) {
  Fill();
  Advance(ServerPings::kEvery);
  ASSERT_TRUE(pipeline().TakePing(now_));
  for (milliseconds asked_for = ServerPings::kEvery; asked_for < ServerPings::kNoAnswerMax;
       asked_for += ServerPings::kEvery) {
    Advance(ServerPings::kEvery);
    ASSERT_TRUE(pipeline().connected());
    pipeline().TakePing(now_);  // nobody asks it: one is under way still
  }
  Advance(ServerPings::kEvery);
  EXPECT_FALSE(pipeline().connected());
  EXPECT_NE(pipeline().last_error(), "");
}

TEST_F(BackPressureTest, SlowAnswerIsOneWhileNothingIsRead) {
  Fill();
  for (int i = 0; i < 3; ++i) {
    Advance(ServerPings::kEvery);
    ASSERT_TRUE(pipeline().TakePing(now_));
    Advance(ServerPings::kNoAnswerMax - milliseconds(1));
    pipeline().OnPing(base::PingAnswer::kServes, now_.mono, now_);
    ASSERT_TRUE(pipeline().connected()) << i;
  }
}

// What is read after a pause may be from long ago, and another instance may have the slot by now.
class PauseTest : public BackPressureTest {
 protected:
  static constexpr milliseconds kTimeout{4'000};

  void SetUp() override {
    BackPressureTest::SetUp();
    End(base::StreamEnd::Kind::kLost);
    facts_.wal_sender_timeout_ms = kTimeout.count();
    Connect();
    Fill();
  }

  void Answer(std::optional<base::PingAnswer> answer) {
    Advance(ServerPings::kEvery);
    const std::optional<base::PingQuestion> question = pipeline().TakePing(now_);
    ASSERT_EQ(question, base::PingQuestion::kSlot);
    if (answer) {
      pipeline().OnPing(*answer, now_.mono, now_);
    }
    Tick();
  }
};

TEST_F(PauseTest, SlotThatIsOursIsPublishedForAsLongAsReadingIsPaused) {
  for (int i = 0; i < 20; ++i) {
    Answer(base::PingAnswer::kOurs);
    ASSERT_FALSE(sink_.closed()) << i;
  }
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

TEST_F(PauseTest, WithoutAnAnswerItIsPublishedForTwiceTheServersTimeout) {
  Answer(base::PingAnswer::kNone);
  Answer(std::nullopt);
  Answer(base::PingAnswer::kNone);
  EXPECT_FALSE(sink_.closed());
  Answer(std::nullopt);
  EXPECT_TRUE(sink_.closed());
  EXPECT_FALSE(pipeline().want_frame()) << "what is read proves nothing";
  EXPECT_TRUE(pipeline().connected());
  Answer(base::PingAnswer::kOurs);
  EXPECT_FALSE(sink_.closed());
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

TEST_F(PauseTest, SlotThatIsNotOursAnyMoreIsPublishedNoFurtherAndConnectedToAnew) {
  Answer(base::PingAnswer::kNotOurs);
  Tick();
  EXPECT_TRUE(sink_.closed());
  EXPECT_FALSE(pipeline().connected());
  EXPECT_EQ(pipeline().tracker().in_flight_events(), 2U);
}

// Who may only replicate, say.
TEST_F(PauseTest, ServerThatDoesNotSayIsTakenToBeOurs) {
  for (int i = 0; i < 20; ++i) {
    Answer(base::PingAnswer::kNotSaid);
    ASSERT_FALSE(sink_.closed()) << i;
  }
}

// It answers again, but who reads the slot was not asked.
TEST_F(PauseTest, ServerThatOnlyServesProvesNothing) {
  for (int i = 0; i < 4; ++i) {
    Answer(base::PingAnswer::kServes);
  }
  EXPECT_TRUE(sink_.closed());
  Answer(base::PingAnswer::kServes);
  EXPECT_TRUE(sink_.closed());
}

TEST_F(PauseTest, AnswerToAnEarlyQuestionProvesNothingOfLater) {
  Answer(std::nullopt);
  const base::MonotonicTime asked_at = now_.mono;
  Answer(std::nullopt);
  pipeline().OnPing(base::PingAnswer::kOurs, asked_at, now_);
  for (milliseconds since = ServerPings::kEvery; since < 2 * kTimeout;
       since += ServerPings::kEvery) {
    EXPECT_FALSE(sink_.closed());
    Answer(std::nullopt);
  }
  EXPECT_TRUE(sink_.closed());
}

TEST_F(BackPressureTest, ServerThatNobodyReachesIsKeptWhileItIsRead) {
  End(base::StreamEnd::Kind::kLost);
  facts_.server_wal_lsn = Lsn(9'000);
  Connect();
  for (int i = 0; i < 30; ++i) {
    Advance(ServerPings::kEvery);
    ASSERT_TRUE(pipeline().TakePing(now_));
    pipeline().OnPing(base::PingAnswer::kNone, now_.mono, now_);
  }
  EXPECT_TRUE(pipeline().connected());
}

TEST_F(BackPressureTest, RowLargerThanTheLimitGoesThroughAlone) {
  SendPayload(Begin(100));
  using walpost::testing::BinaryColumn;
  using walpost::testing::TextColumn;
  SendPayload(EventBytes({TextColumn("a1"), TextColumn("a"), TextColumn("orders"), TextColumn("t"),
                          BinaryColumn(std::string(5'000, 'x'))}));
  EXPECT_FALSE(pipeline().want_frame());
  Deliver(0);
  EXPECT_TRUE(pipeline().want_frame());
}

}  // namespace
}  // namespace walpost::pipeline
