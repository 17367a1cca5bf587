// Streams that end, servers that stop, and what must be the same on the next connection.
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using base::State;
using base::StreamEnd;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReconnectTest : public PipelineFixture {
 protected:
  // Connecting is asked for not before `wait` from now.
  void ExpectReconnectAfter(milliseconds wait) {
    Advance(wait - milliseconds(1));
    EXPECT_FALSE(pipeline().TakeConnect(now_)) << "too early";
    EXPECT_LE(pipeline().NextDeadline(), now_.mono + milliseconds(1));
    Advance(milliseconds(1));
    EXPECT_TRUE(pipeline().TakeConnect(now_));
    EXPECT_FALSE(pipeline().TakeConnect(now_)) << "one attempt at a time";
  }
};

// Failure 1.
TEST_F(ReconnectTest, LostConnectionIsTriedAgainAfterTheBackOff) {
  EXPECT_EQ(pipeline().state(), State::kStarting);
  Connect();
  End(StreamEnd::Kind::kLost, "connection reset by peer");
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
  EXPECT_EQ(pipeline().last_error(), "connection reset by peer");
  EXPECT_EQ(pipeline().counters().reconnects, 1U);
  EXPECT_FALSE(TakeStatus());
  ExpectReconnectAfter(kBackOff);
}

TEST_F(ReconnectTest, FirstConnectionThatFailsIsStillStarting) {
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(StreamEnd::Kind::kLost, "connection refused");
  EXPECT_EQ(pipeline().state(), State::kStarting);
  ExpectReconnectAfter(kBackOff);
}

// Failure 11.
TEST_F(ReconnectTest, SlotInUseIsStandby) {
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(StreamEnd::Kind::kSlotInUse, "slot is active for PID 7");
  EXPECT_EQ(pipeline().state(), State::kStandby);
  Advance(milliseconds(20'000));
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(StreamEnd::Kind::kLost, "Kafka is away");
  EXPECT_EQ(pipeline().state(), State::kStarting) << "nobody has it any more";
  Connect();
  EXPECT_EQ(pipeline().state(), State::kStreaming);
  End(StreamEnd::Kind::kLost);
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
}

TEST_F(ReconnectTest, AttemptsAreCountedByWhatMadeThemNeeded) {
  const auto count = [this](ReconnectReason reason) {
    return pipeline().counters().reconnects_by_reason[static_cast<std::size_t>(reason)];
  };
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(StreamEnd::Kind::kLost, "connection refused");
  EXPECT_EQ(count(ReconnectReason::kConnectFailed), 1U);
  Connect();
  End(StreamEnd::Kind::kLost);
  EXPECT_EQ(count(ReconnectReason::kLost), 1U);
  Connect();
  pipeline().OnPing(base::PingAnswer::kStopping, now_.mono, now_);
  EXPECT_EQ(count(ReconnectReason::kServerStopping), 1U);
  Advance(Pipeline::kAfterServerStop);
  EXPECT_EQ(pipeline().TakeStreamCommand(), StreamCommand::kNone) << "the fixture took it";
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(StreamEnd::Kind::kSlotInUse, "slot is active for PID 7");
  EXPECT_EQ(count(ReconnectReason::kSlotInUse), 1U);
  EXPECT_EQ(pipeline().counters().reconnects, 4U);
}

TEST_F(ReconnectTest, RepeatsAfterAReconnectAreDropped) {
  Connect();
  Transaction(100, {"a1"});
  DeliverAll();
  Transaction(200, {"a2", "a3"});
  SendPayload(Begin(300));
  Event("a4");
  End(StreamEnd::Kind::kLost);
  Connect(/*start=*/Lsn(100));
  Transaction(100, {"a1"});
  Transaction(200, {"a2", "a3"});
  Transaction(300, {"a4", "a5"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3", "a4", "a5"));
  EXPECT_EQ(Confirmed(), Lsn(308));
  EXPECT_EQ(pipeline().counters().events_repeated, 4U);
  EXPECT_EQ(pipeline().counters().events_received, 5U);
  ExpectAccounted();
}

TEST_F(ReconnectTest, EventsInFlightAreDeliveredWhileThereIsNoConnection) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  DeliverAll();
  Connect(/*start=*/Lsn(100));
  EXPECT_EQ(Confirmed(), Lsn()) << "not yet sent by this server";
  Transaction(100, {"a1"});
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(ReconnectTest, CutTransactionIsNotConfirmedUntilItCameWhole) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  DeliverAll();
  End(StreamEnd::Kind::kLost);
  Connect(/*start=*/Lsn(100));
  Keepalive(90);
  EXPECT_EQ(Confirmed(), Lsn());
  SendPayload(Begin(100));
  Event("a1");
  Event("a2");
  DeliverAll();
  EXPECT_LT(Confirmed(), Lsn(108));
  SendPayload(Commit(100));
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

// Failure 1.
TEST_F(ReconnectTest, SilentServerIsDroppedAndTriedAgain) {
  facts_.wal_sender_timeout_ms = 6'000;
  Connect();
  Advance(milliseconds(3'000));
  const auto probe = TakeStatus();
  ASSERT_TRUE(probe);
  EXPECT_TRUE(probe->reply_requested);
  Advance(milliseconds(2'999));
  EXPECT_TRUE(pipeline().connected());
  Advance(milliseconds(1));
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
  EXPECT_THAT(pipeline().last_error(), HasSubstr("silent for wal_sender_timeout"));
}

// It may be busy for long without a word.
// It takes minutes over a slow line.
TEST_F(ReconnectTest, PartsOfALargeRowAreNoSilence) {
  facts_.wal_sender_timeout_ms = 6'000;
  Connect();
  for (int i = 0; i < 10; ++i) {
    Advance(milliseconds(5'000));
    pipeline().OnBytes(now_);
    while (TakeStatus()) {
    }
    ASSERT_TRUE(pipeline().connected()) << i;
  }
  Advance(milliseconds(3'000));
  EXPECT_TRUE(TakeStatus()->reply_requested);
  Advance(milliseconds(3'000));
  EXPECT_EQ(last_command_, StreamCommand::kClose);
}

TEST_F(ReconnectTest, SilenceAfterTheSamePositionIsBorneTwiceAsLongEachTimeAndThenHalts) {
  facts_.wal_sender_timeout_ms = 6'000;
  facts_.server_wal_lsn = Lsn(1'000);  // it has more to decode
  options_.reconnect_interval = milliseconds(0);
  for (int i = 1; i < SourceTimers::kSilencesMax; ++i) {
    Connect();
    const milliseconds limit(6'000 * (1 << (i - 1)));
    Advance(limit / 2);
    ASSERT_TRUE(TakeStatus());
    Advance(limit / 2 - milliseconds(1));
    EXPECT_TRUE(pipeline().connected()) << i;
    Advance(milliseconds(1));
    EXPECT_FALSE(pipeline().connected()) << i;
  }
  Connect();
  Advance(milliseconds(6'000 * 32));
  ASSERT_TRUE(TakeStatus());
  Advance(milliseconds(6'000 * 32));
  ExpectHalted(HaltReason::kPoisonWal, "fell silent 7 times after the same position (0/0)");
}

TEST_F(ReconnectTest, SilenceElsewhereIsBorneNoLonger) {
  facts_.wal_sender_timeout_ms = 6'000;
  const auto fall_silent = [this] {
    Advance(milliseconds(3'000));
    while (TakeStatus()) {
    }
    Advance(milliseconds(3'000));
  };
  Connect();
  fall_silent();
  Connect();
  Keepalive(500);
  facts_.start_lsn = Lsn(500);
  fall_silent();
  EXPECT_TRUE(pipeline().connected()) << "its limit was doubled with the connection";
  fall_silent();
  Connect();
  Keepalive(600);
  fall_silent();
  EXPECT_TRUE(pipeline().connected());
}

TEST_F(ReconnectTest, SilenceAfterAConnectionThatCaughtUpIsTheFirst) {
  facts_.wal_sender_timeout_ms = 6'000;
  facts_.server_wal_lsn = Lsn(500);
  options_.reconnect_interval = milliseconds(0);
  for (int i = 1; i <= 2 * SourceTimers::kSilencesMax; ++i) {
    Connect();
    Keepalive(500);
    for (int asked = 0; pipeline().connected(); ++asked) {
      ASSERT_LT(asked, 4) << "it is borne longer than twice, " << i;
      Advance(milliseconds(3'000));
      TakeStatus();
    }
    ASSERT_FALSE(pipeline().halt()) << i;
  }
}

TEST_F(ReconnectTest, SilentServerWithoutATimeoutIsNotDroppedButReported) {
  facts_.wal_sender_timeout_ms = 0;
  options_.reconnect_interval = milliseconds(0);
  Connect();
  int asked = 0;
  for (int i = 0; i < 1'000; ++i) {
    Advance(milliseconds(10'000));
    while (const auto status = TakeStatus()) {
      asked += status->reply_requested ? 1 : 0;
    }
    EXPECT_EQ(pipeline().last_error().empty(), i < 5) << i << pipeline().last_error();
  }
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(pipeline().connected());
  Keepalive(500);
  Advance(milliseconds(0));
  EXPECT_EQ(pipeline().last_error(), "");
}

TEST_F(ReconnectTest, SilenceIsShownAfterAMinuteAlsoWithALongTimeout) {
  facts_.wal_sender_timeout_ms = 3'600'000;
  options_.reconnect_interval = milliseconds(0);
  Connect();
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(pipeline().last_error(), "");
    Advance(milliseconds(9'999));
    while (TakeStatus()) {
    }
  }
  EXPECT_NE(pipeline().last_error(), "");
  EXPECT_TRUE(pipeline().connected());
}

TEST_F(ReconnectTest, WhyASilentServersConnectionEndedIsShown) {
  facts_.wal_sender_timeout_ms = 0;
  options_.reconnect_interval = milliseconds(0);
  Connect();
  Advance(milliseconds(30'000));
  ASSERT_TRUE(TakeStatus());
  Advance(milliseconds(30'000));
  ASSERT_NE(pipeline().last_error(), "");
  End(StreamEnd::Kind::kLost);
  const std::string error = pipeline().last_error();
  Advance(milliseconds(1));
  EXPECT_EQ(pipeline().last_error(), error);
}

class BackOffTest : public ReconnectTest {
 protected:
  BackOffTest() {
    options_.source_backoff = {milliseconds(1'000), milliseconds(64'000), milliseconds(0)};
  }

  // The time until the next attempt.
  std::chrono::nanoseconds Wait() {
    Advance(milliseconds(0));
    const auto start = now_.mono;
    while (!pipeline().TakeConnect(now_)) {
      Advance(milliseconds(10));
    }
    return now_.mono - start;
  }

  std::chrono::nanoseconds LongestOf(int failures) {
    std::chrono::nanoseconds longest{0};
    for (int i = 0; i < failures; ++i) {
      End(StreamEnd::Kind::kLost);
      longest = std::max(longest, Wait());
    }
    return longest;
  }
};

TEST_F(BackOffTest, BackOffGrowsUntilPositionsMove) {
  pipeline();
  Wait();
  EXPECT_GT(LongestOf(12), milliseconds(1'100));
  pipeline().OnConnected(facts_, now_);
  Keepalive(500);
  End(StreamEnd::Kind::kLost);
  EXPECT_LE(Wait(), milliseconds(1'010));
}

TEST_F(BackOffTest, BackOffGrowsAfterAConnectionOnWhichPositionsMoved) {
  pipeline();
  Wait();
  pipeline().OnConnected(facts_, now_);
  Keepalive(500);
  EXPECT_GT(LongestOf(12), milliseconds(1'100))
      << "a server that is down is tried ever more rarely";
}

// --- A server that stops ---

// Failure 3.
TEST_F(ReconnectTest, FiveRepliesRequestedWithinASecondShowThatTheServerIsStopping) {
  Connect();
  Transaction(100, {"a1"});
  for (int i = 0; i < 4; ++i) {
    Keepalive(500, /*reply_requested=*/true);
    EXPECT_TRUE(TakeStatus());
    Advance(milliseconds(10));
  }
  EXPECT_TRUE(pipeline().connected());
  Keepalive(500, /*reply_requested=*/true);
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  EXPECT_FALSE(pipeline().connected());
  EXPECT_THAT(pipeline().last_error(), HasSubstr("is shutting down"));
  EXPECT_EQ(pipeline().tracker().in_flight_events(), 1U) << "kept";
  ExpectReconnectAfter(Pipeline::kAfterServerStop);
}

// Failure 2.
TEST_F(ReconnectTest, StoppingServerIsServedToTheEndWhenNothingIsUndelivered) {
  Connect();
  for (int i = 0; i < 20; ++i) {
    Keepalive(500, /*reply_requested=*/true);
    EXPECT_TRUE(TakeStatus());
  }
  EXPECT_TRUE(pipeline().connected());
  End(StreamEnd::Kind::kFinished, "");
  ExpectReconnectAfter(milliseconds(1'000));
}

TEST_F(ReconnectTest, StopSeenByAPingClosesTheConnectionAndKeepsWhatIsInFlight) {
  options_.in_flight_bytes_max = 1;
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  pipeline().OnPing(base::PingAnswer::kStopping, now_.mono, now_);
  Tick();
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  ExpectReconnectAfter(Pipeline::kAfterServerStop);
  pipeline().OnConnected(facts_, now_);
  EXPECT_TRUE(pipeline().want_frame()) << "what comes again takes no memory";
  SendPayload(Begin(100));
  EXPECT_FALSE(pipeline().want_frame()) << "still full";
  DeliverAll();
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

TEST_F(ReconnectTest, LatePingOfAConnectionThatIsGoneChangesNothing) {
  Connect();
  End(StreamEnd::Kind::kLost);
  pipeline().OnPing(base::PingAnswer::kStopping, now_.mono, now_);
  ExpectReconnectAfter(kBackOff);
}

TEST_F(ReconnectTest, ServerThatEndedWithEventsUndeliveredIsGivenTimeToStop) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kFinished, "");
  ExpectReconnectAfter(Pipeline::kAfterServerStop);
}

// --- What must be the same on the next connection ---

TEST_F(ReconnectTest, AnotherClusterHaltsAndIsNotConfirmedTo) {
  Connect();
  Transaction(100, {"a1"});
  DeliverAll();
  End(StreamEnd::Kind::kLost);
  facts_.system_identifier = 0xBAD;
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  ExpectHalted(HaltReason::kClusterChanged, "another server");
  EXPECT_EQ(last_command_, StreamCommand::kClose);
}

// Failure 21.
TEST_F(ReconnectTest, TimelineThatLeftOurProgressBehindHalts) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  facts_.timeline = 4;
  facts_.timeline_history.push_back({3, Lsn(107)});
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  ExpectHalted(HaltReason::kTimelineChanged, "timeline 3 ended at 0/6B");
  EXPECT_EQ(last_command_, StreamCommand::kClose);
}

// Failure 20.
TEST_F(ReconnectTest, TimelineThatContainsOurProgressGoesOn) {
  Connect();
  Transaction(100, {"a1"});
  End(StreamEnd::Kind::kLost);
  facts_.timeline = 4;
  facts_.timeline_history.push_back({3, Lsn(108)});
  Connect(/*start=*/Lsn(100));
  Transaction(100, {"a1"});
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_EQ(pipeline().state(), State::kStreaming);
}

// Its rows are taken already, and rows of the new timeline at lower positions would count as
// repeats.
TEST_F(ReconnectTest, TimelineThatLeftAnOpenTransactionBehindHalts) {
  Connect();
  Transaction(100, {"a1"});
  SendPayload(Begin(200));
  Event("a2");
  End(StreamEnd::Kind::kLost);
  facts_.timeline = 4;
  facts_.timeline_history.push_back({3, Lsn(200)});
  Connect(/*start=*/Lsn(100), /*announce=*/false);
  ExpectHalted(HaltReason::kTimelineChanged, "timeline 3 ended at 0/C8");
}

TEST_F(ReconnectTest, TimelineThatLeftAPositionWithinATransactionBehindHalts) {
  Connect();
  SendPayload(Begin(200));
  Keepalive(180);
  End(StreamEnd::Kind::kLost);
  facts_.timeline = 4;
  facts_.timeline_history.push_back({3, Lsn(150)});
  Connect(/*start=*/Lsn(), /*announce=*/false);
  ExpectHalted(HaltReason::kTimelineChanged, "timeline 3 ended at 0/96");
}

TEST_F(ReconnectTest, TimelineThatContainsTheOpenTransactionGoesOn) {
  Connect();
  SendPayload(Begin(200));
  Event("a1");
  End(StreamEnd::Kind::kLost);
  facts_.timeline = 4;
  facts_.timeline_history.push_back({3, Lsn(208)});
  Connect(/*start=*/Lsn(200));
  Transaction(200, {"a1"});
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn(208));
}

TEST_F(ReconnectTest, OlderTimelineHalts) {
  Connect();
  End(StreamEnd::Kind::kLost);
  facts_.timeline = 2;
  facts_.timeline_history = {{1, Lsn(10)}};
  Connect(/*start=*/Lsn(), /*announce=*/false);
  ExpectHalted(HaltReason::kTimelineChanged, "timeline 2, but was on timeline 3");
}

// It follows its new primary soon.
TEST_F(ReconnectTest, StandbyOnAnOlderTimelineIsWaitedFor) {
  facts_.in_recovery = true;
  Connect();
  End(StreamEnd::Kind::kLost);
  facts_.timeline = 2;
  facts_.timeline_history = {{1, Lsn(10)}};
  Connect(/*start=*/Lsn(), /*announce=*/false);
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
  facts_.timeline = 3;
  facts_.timeline_history = {{1, Lsn(10)}, {2, Lsn(20)}};
  Connect();
  EXPECT_EQ(pipeline().state(), State::kStreaming);
}

TEST_F(ReconnectTest, TableOfTheSameNameWithAnotherOidHalts) {
  Connect();
  End(StreamEnd::Kind::kLost);
  facts_.tables[0].oid = 17'000;
  Connect(/*start=*/Lsn(), /*announce=*/false);
  ExpectHalted(HaltReason::kTableReplaced, "outbox.events is OID 17000 but was OID 16400");
}

// Also when nothing is remembered yet.
TEST_F(ReconnectTest, PublicationOfTheSameNameWithAnotherOidHalts) {
  facts_.publication_oid = 500;
  Connect();
  End(StreamEnd::Kind::kLost);
  facts_.publication_oid = 501;
  Connect(/*start=*/Lsn(), /*announce=*/false);
  ExpectHalted(HaltReason::kPublicationMissing, "OID 501 but was OID 500");
}

TEST_F(ReconnectTest, PlannedReconnectEndsTheStreamBetweenTransactionsAndConnectsAtOnce) {
  options_.reconnect_interval = milliseconds(5'000);
  Connect();
  Transaction(100, {"a1"});
  DeliverAll();
  Advance(milliseconds(4'999));
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  Advance(milliseconds(1));
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(pipeline().state(), State::kStreaming) << "planned, so nobody needs to be woken";
  EXPECT_EQ(pipeline().counters().reconnects, 0U);
  EXPECT_EQ(pipeline().counters().reconnects_by_reason[static_cast<int>(ReconnectReason::kPlanned)],
            1U);
  Connect(/*start=*/Lsn(100));
  Transaction(100, {"a1"});
  Transaction(200, {"a2"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

// The server reads its log again for each connection.
TEST_F(ReconnectTest, PlannedReconnectWaitsUntilTheServerHasComeFurtherThanBefore) {
  options_.reconnect_interval = milliseconds(5'000);
  facts_.server_wal_lsn = Lsn(1'000);
  facts_.wal_sender_timeout_ms = 0;
  Connect();
  Transaction(100, {"a1"});
  DeliverAll();
  Keepalive(999);
  Advance(milliseconds(60'000));
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  Keepalive(1'000);
  Advance(milliseconds(599'999));
  EXPECT_EQ(last_command_, StreamCommand::kNone) << "ten times what it took";
  Advance(milliseconds(1));
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
}

TEST_F(ReconnectTest, PlannedReconnectNeverCutsATransaction) {
  options_.reconnect_interval = milliseconds(5'000);
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Advance(milliseconds(5'000) + Pipeline::kReconnectPatience);
  EXPECT_EQ(last_command_, StreamCommand::kNone);
}

// The loop would turn without a pause until the rest of the transaction comes.
TEST_F(ReconnectTest, PlannedReconnectThatWaitsForATransactionsEndIsNoDeadline) {
  options_.reconnect_interval = milliseconds(5'000);
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  DeliverAll();
  Advance(milliseconds(5'000));
  while (TakeStatus()) {
  }
  EXPECT_GT(pipeline().NextDeadline(), now_.mono);
  SendPayload(Commit(100));
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
}

TEST_F(ReconnectTest, PlannedReconnectWaitsForWhatIsInFlightButNotForEver) {
  options_.reconnect_interval = milliseconds(5'000);
  Connect();
  Transaction(100, {"a1"});
  Advance(milliseconds(5'000));
  EXPECT_EQ(last_command_, StreamCommand::kNone);
  Keepalive(108);
  Advance(Pipeline::kReconnectPatience + milliseconds(1));
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
}

TEST_F(ReconnectTest, PlannedReconnectThatFindsATableReplacedHalts) {
  options_.reconnect_interval = milliseconds(5'000);
  Connect();
  Advance(milliseconds(5'000));
  ++facts_.tables[0].oid;
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  pipeline().OnConnected(facts_, now_);
  ExpectHalted(HaltReason::kTableReplaced, "dropped and created");
}

}  // namespace
}  // namespace walpost::pipeline
