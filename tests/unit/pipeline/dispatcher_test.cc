#include "dispatcher_fixture.h"

namespace walpost::pipeline {
namespace {

using delivery::Failure;
using delivery::FailureKind;
using delivery::Sequence;
using delivery::Sink;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using walpost::testing::FakeSink;

TEST_F(DispatcherTest, EventsAreSubmittedInOrderToAFastProducer) {
  Add(3);
  EXPECT_EQ(mode(), Sink::Mode::kPipelined);
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(dispatcher_.caught_up());
  Add(1);
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DispatcherTest, GatheredEventsGoOutTogetherWhenTheirTimeIsUp) {
  Gather(3);
  Poll(milliseconds(2));
  EXPECT_THAT(sink_.accepted(), IsEmpty());
  EXPECT_TRUE(dispatcher_.caught_up()) << "reading goes on";
  EXPECT_EQ(dispatcher_.NextDeadline(), now_.mono + milliseconds(1));
  Gather(1);
  Poll(milliseconds(1));
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DispatcherTest, GatheredEventsGoOutWhenTheStreamIsQuiet) {
  Gather(2);
  dispatcher_.OnQuiet(now_);
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1));
  EXPECT_TRUE(dispatcher_.caught_up());
}

TEST_F(DispatcherTest, WhatComesWhileReportsAreAwaitedGoesOutWithTheLastOfThem) {
  Add(2);
  Gather(1);
  dispatcher_.OnQuiet(now_);
  sink_.Deliver(0);
  Poll(milliseconds(4));
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1)) << "one report is still awaited";
  EXPECT_TRUE(dispatcher_.caught_up()) << "reading goes on";
  sink_.Deliver(1);
  Poll();
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1, 2));
}

TEST_F(DispatcherTest, WhileTheStreamKeepsComingALastReportEndsNoGathering) {
  Add(1);
  Gather(1);
  sink_.Deliver(0);
  Poll(milliseconds(2));
  EXPECT_THAT(sink_.accepted(), ElementsAre(0));
  Poll(milliseconds(1));
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1));
}

TEST_F(DispatcherTest, WhatComesWhileReportsAreAwaitedGoesOutWhenTheLongestTimeIsUp) {
  Add(1);
  Gather(1);
  dispatcher_.OnQuiet(now_);
  Poll(milliseconds(19));
  EXPECT_THAT(sink_.accepted(), ElementsAre(0));
  EXPECT_EQ(dispatcher_.NextDeadline(), now_.mono + milliseconds(1));
  Poll(milliseconds(1));
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1));
}

TEST_F(DispatcherTest, GatheringEndsAtItsLimit) {
  Gather(static_cast<int>(Dispatcher::kGatherEvents));
  EXPECT_EQ(sink_.accepted().size(), Dispatcher::kGatherEvents);
}

TEST_F(DispatcherTest, NothingIsGatheredBehindARecordThatHasToWait) {
  sink_.SetCapacity(1);
  Gather(2);
  dispatcher_.Pump();
  EXPECT_FALSE(dispatcher_.caught_up());
  Gather(1);
  EXPECT_FALSE(dispatcher_.caught_up()) << "the line stops";
  EXPECT_THAT(sink_.accepted(), ElementsAre(0));
}

TEST_F(DispatcherTest, GatheredEventsOfASessionThatFailsAreNotForgotten) {
  Add(1);
  Gather(2);
  sink_.FailSession("fatal");
  Poll();
  DeliverToTheEnd();
  EXPECT_EQ(counters_.events_delivered, 3U);
}

TEST_F(DispatcherTest, ReportsSettleEventsInWhateverOrderTheyCome) {
  Add(3);
  sink_.Deliver(2);
  Poll();
  EXPECT_EQ(tracker_.oldest_unsettled(), 0U);
  EXPECT_EQ(tracker_.safe_lsn(), base::Lsn());
  sink_.Deliver(0);
  sink_.Deliver(1);
  Poll();
  EXPECT_TRUE(tracker_.empty());
  EXPECT_EQ(counters_.events_delivered, 3U);
  EXPECT_THAT(counters_.delivered_by_topic.rows(),
              ElementsAre(Pair("(other)", 0), Pair("orders", 3)));
  EXPECT_EQ(counters_.records_resubmitted, 0U);
}

TEST_F(DispatcherTest, RecordRejectedForNowIsOfferedAgainAndNothingPassesIt) {
  sink_.SetCapacity(2);
  Add(4);
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1));
  EXPECT_FALSE(dispatcher_.caught_up());
  sink_.Deliver(1);
  Poll();
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1, 2));
  DeliverToTheEnd();
  EXPECT_THAT(sink_.accepted(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DispatcherTest, FailedReportEndsTheSessionAndWhatIsLeftGoesThroughCarefulThenFast) {
  Add(6);  // 0 and 4 share a partition, and so do 1 and 5
  sink_.Deliver(0);
  sink_.Fail(1, FailureKind::kRecordTooLarge);  // it shared a batch with the culprit
  Poll();
  sink_.Deliver(2);  // was under way
  NextSession();
  EXPECT_EQ(mode(), Sink::Mode::kOneAtATime);
  EXPECT_THAT(sink_.accepted(), ElementsAre(1, 3, 4, 5));
  EXPECT_FALSE(dispatcher_.caught_up()) << "nothing new is read meanwhile";
  sink_.DeliverAll();
  Poll();
  EXPECT_TRUE(tracker_.empty());
  NextSession();
  EXPECT_EQ(mode(), Sink::Mode::kPipelined);
  EXPECT_TRUE(dispatcher_.caught_up());
  EXPECT_FALSE(dispatcher_.halt_at());
  EXPECT_THAT(Visible('a'), ElementsAre("event 0", "event 4"));
  EXPECT_THAT(Visible('b'), ElementsAre("event 1", "event 5"));
  EXPECT_EQ(counters_.records_resubmitted, 4U);
  EXPECT_EQ(counters_.producer_sessions, 3U);
}

// Failure 79.
TEST_F(DispatcherTest, SessionThatClosesWithoutReportsIsResubmittedToo) {
  sink_.CloseSilently(true);
  Add(3);
  sink_.Fail(0, FailureKind::kOther);
  NextSession();
  DeliverToTheEnd();
  EXPECT_EQ(counters_.events_delivered, 3U);
}

// Failure 71.
TEST_F(DispatcherTest, FailureOfTheSessionBacksOffAndJudgesNobody) {
  Add(2);
  sink_.FailSession("fatal");
  Poll();
  Poll();
  ASSERT_TRUE(sink_.closed());
  EXPECT_EQ(dispatcher_.NextDeadline(), now_.mono + kBackOff);
  Poll(kBackOff - milliseconds(1));
  EXPECT_TRUE(sink_.closed());
  Poll(milliseconds(1));
  EXPECT_FALSE(sink_.closed());
  DeliverToTheEnd();
  EXPECT_FALSE(dispatcher_.halt_at());
}

TEST_F(DispatcherTest, RecordRejectedInFastModeIsTriedAgainWithoutBackOff) {
  Add(1);
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Poll();
  EXPECT_EQ(sink_.sessions().size(), 2U);
  EXPECT_EQ(mode(), Sink::Mode::kOneAtATime);
}

// A partition without a leader gives no answer, for as long as it lasts.
TEST_F(DispatcherTest, CarefulProducerWithoutAReportIsGivenUpAndOthersGoOn) {
  Add(2);
  sink_.Fail(1, FailureKind::kRecordInvalid);
  NextSession();
  ASSERT_EQ(mode(), Sink::Mode::kOneAtATime);
  Poll(Dispatcher::kReportWaitMin - milliseconds(1));
  sink_.Deliver(1);
  Poll();
  Poll(Dispatcher::kReportWaitMin - milliseconds(1));
  EXPECT_EQ(mode(), Sink::Mode::kOneAtATime) << "a report came";
  EXPECT_EQ(dispatcher_.NextDeadline(), now_.mono + milliseconds(1));
  Poll(milliseconds(1));
  Poll();
  EXPECT_EQ(mode(), Sink::Mode::kPipelined);
  EXPECT_TRUE(dispatcher_.caught_up());
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0));
}

// Else one that fails each time, later than that, would never be decided about.
TEST_F(DispatcherTest, EachCarefulProducerWaitsLongerForAReport) {
  Add(1);
  milliseconds longest(0);
  for (int i = 0; i < 40; ++i) {
    sink_.Fail(0, FailureKind::kRecordInvalid);
    NextSession();
    ASSERT_EQ(mode(), Sink::Mode::kOneAtATime);
    const base::MonotonicTime since = now_.mono;
    while (mode() == Sink::Mode::kOneAtATime) {
      Poll(milliseconds(100));
    }
    longest = std::max(longest, std::chrono::duration_cast<milliseconds>(now_.mono - since));
  }
  EXPECT_GT(longest, milliseconds(30'000)) << "what a broker may take";
  EXPECT_FALSE(dispatcher_.halt_at());
}

TEST_F(DispatcherTest, OutgrownProducerIsReplacedByOneOfItsMode) {
  Add(2);
  sink_.OutgrowProducer();
  NextSession();
  EXPECT_EQ(mode(), Sink::Mode::kPipelined);
  sink_.Fail(0, FailureKind::kRecordInvalid);
  NextSession();
  sink_.OutgrowProducer();
  NextSession();
  EXPECT_EQ(mode(), Sink::Mode::kOneAtATime);
  EXPECT_EQ(counters_.producers_for_settings, 2U);
  EXPECT_EQ(counters_.producers_after_failure, 1U);
  DeliverToTheEnd();
}

TEST_F(DispatcherTest, CarefulProducerWhoseTopicIsLookedUpStaysCareful) {
  Add(1);
  const std::string topic(tracker_.entry(0).record.topic);
  sink_.SetPending(topic, true);  // each producer looks its topics up anew
  sink_.Fail(0, FailureKind::kRecordInvalid);
  Poll();
  Poll();
  sink_.SetPending(topic, false);
  Poll();
  EXPECT_EQ(mode(), Sink::Mode::kOneAtATime);
  ASSERT_THAT(sink_.outstanding(), ElementsAre(0));
  sink_.Fail(0, FailureKind::kRecordInvalid, "no good");
  Poll();
  EXPECT_TRUE(dispatcher_.halt_at());
}

TEST_F(DispatcherTest, FailureOfOneRecordAloneDecides) {
  for (const FailureKind kind :
       {FailureKind::kRecordTooLarge, FailureKind::kRecordInvalid, FailureKind::kTopicInvalid}) {
    Add(1);
    const Sequence event = tracker_.oldest_unsettled();
    sink_.Fail(event, kind);
    Poll();
    ASSERT_EQ(mode(), Sink::Mode::kOneAtATime);
    EXPECT_FALSE(dispatcher_.halt_at()) << "in a batch it may have been another's fault";
    sink_.Fail(event, kind, "no good");
    Poll();
    ASSERT_TRUE(dispatcher_.halt_at());
    EXPECT_EQ(dispatcher_.halt_at()->sequence, event);
    EXPECT_THAT(dispatcher_.halt_at()->halt.detail, HasSubstr("no good"));
    dispatcher_.ShutDown();
    Poll();
    tracker_.DiscardAll();
    dispatcher_.Start(now_);
  }
}

// UNKNOWN_SERVER_ERROR for a while says nothing about the record.
TEST_F(DispatcherTest, EndedSessionNeverDecides) {
  Add(1);
  for (int i = 0; i < 20; ++i) {
    sink_.Fail(0, FailureKind::kSessionEnded);
    NextSession();
    ASSERT_EQ(mode(), Sink::Mode::kOneAtATime);
  }
  EXPECT_FALSE(dispatcher_.halt_at());
  DeliverToTheEnd();
}

TEST_F(DispatcherTest, RecordTheSinkRejectsIsDecidedAndNothingAfterItIsSubmitted) {
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  Add(3);
  ASSERT_TRUE(dispatcher_.halt_at());
  EXPECT_EQ(dispatcher_.halt_at()->sequence, 1U);
  EXPECT_THAT(sink_.accepted(), ElementsAre(0));
  sink_.DeliverAll();
  Poll();
  EXPECT_THAT(sink_.accepted(), ElementsAre(0));
  EXPECT_EQ(tracker_.oldest_unsettled(), 1U);
}

TEST_F(DispatcherTest, WhatCameBeforeARejectedRecordIsResubmittedWhenItsSessionFails) {
  sink_.Reject(2, Failure{FailureKind::kRecordTooLarge, "too large"});
  Add(4);
  ASSERT_TRUE(dispatcher_.halt_at());
  sink_.FailSession("fatal");
  NextSession();
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0, 1));
  sink_.DeliverAll();
  Poll();
  EXPECT_EQ(tracker_.oldest_unsettled(), 2U);
  EXPECT_THAT(sink_.outstanding(), IsEmpty());
}

TEST_F(DispatcherTest, BackOffGrowsUntilSomethingIsDelivered) {
  const base::BackoffOptions growing{milliseconds(1'000), milliseconds(64'000), milliseconds(900)};
  FakeSink sink;
  Dispatcher dispatcher({growing, 7, milliseconds(0)}, &tracker_, &sink, &counters_,
                        &undeliverables_, &dead_letters_);
  dispatcher.Start(now_);
  Add(1);
  dispatcher.Pump();
  const auto fail = [&] {
    sink.FailSession("fatal");
    dispatcher.Poll(now_);
    dispatcher.Poll(now_);
    const auto wait = *dispatcher.NextDeadline() - now_.mono;
    now_.mono += wait;
    dispatcher.Poll(now_);
    return wait;
  };
  auto longest = fail();
  for (int i = 0; i < 12; ++i) {
    longest = std::max(longest, fail());
  }
  EXPECT_GT(longest, milliseconds(1'000));
  sink.DeliverAll();
  dispatcher.Poll(now_);  // and on to the pipelined one
  dispatcher.Poll(now_);
  dispatcher.Poll(now_);
  EXPECT_LE(fail(), milliseconds(1'000));
}

// --- ShutDown ---

TEST_F(DispatcherTest, ShutDownWaitsForTheSinkToClose) {
  Add(2);
  sink_.HoldClose(true);
  dispatcher_.ShutDown();
  Poll(kBackOff);
  EXPECT_FALSE(dispatcher_.idle());
  sink_.HoldClose(false);
  Poll();
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_TRUE(sink_.closed());
  Poll(milliseconds(60'000));
  EXPECT_EQ(sink_.sessions().size(), 1U) << "no further session";
}

TEST_F(DispatcherTest, ReportsThatComeWhileClosingStillSettle) {
  Add(2);
  dispatcher_.ShutDown();
  sink_.Deliver(0);
  Poll();
  EXPECT_EQ(tracker_.oldest_unsettled(), 1U);
  EXPECT_EQ(tracker_.in_flight_events(), 1U);
}

TEST_F(DispatcherTest, ShutDownDuringTheBackOffIsIdleAtOnce) {
  Add(1);
  sink_.FailSession("fatal");
  Poll();
  Poll();
  dispatcher_.ShutDown();
  EXPECT_TRUE(dispatcher_.idle());
  Poll(milliseconds(60'000));
  EXPECT_TRUE(sink_.closed());
}

TEST_F(DispatcherTest, ShutDownWhileASessionIsEndingOpensNoOther) {
  Add(1);
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  sink_.HoldClose(true);
  Poll();
  dispatcher_.ShutDown();
  sink_.HoldClose(false);
  Poll();
  Poll(milliseconds(60'000));
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(sink_.sessions().size(), 1U);
}

TEST_F(DispatcherTest, StartAfterShutDownForgetsTheHalt) {
  sink_.Reject(0, Failure{FailureKind::kTopicUnknown, "no such topic"});
  Add(1);
  ASSERT_TRUE(dispatcher_.halt_at());
  dispatcher_.ShutDown();
  Poll();
  ASSERT_TRUE(dispatcher_.idle());
  tracker_.DiscardAll();
  sink_.StopRejecting();
  dispatcher_.Start(now_);
  EXPECT_FALSE(dispatcher_.halt_at());
  Add(1);
  DeliverToTheEnd();
  EXPECT_EQ(counters_.records_resubmitted, 0U);
}

}  // namespace
}  // namespace walpost::pipeline
