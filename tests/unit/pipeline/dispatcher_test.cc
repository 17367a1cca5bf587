#include "pipeline/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "support/fake_sink.h"

namespace walpost::pipeline {
namespace {

using delivery::Failure;
using delivery::FailureKind;
using delivery::Sequence;
using delivery::Sink;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using walpost::testing::FakeSink;

constexpr milliseconds kBackOff{100};
constexpr int kAttemptsMax = 3;

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(milliseconds unknown_topic_wait = milliseconds(0))
      : unknown_topic_wait_(unknown_topic_wait) {}

  void SetUp() override {
    counters_.delivered_by_topic.emplace_back("orders", 0);
    counters_.received_by_table.emplace_back("outbox.events", 0);
    dispatcher_.Start(now_);
  }

  // Events of keys a, b, c, ... which the fake puts on partitions of their own.
  void Add(int count) {
    Track(count);
    dispatcher_.Pump();
  }

  void AddTo(const std::string& topic) {
    topic_ = *topics_.insert(topic).first;
    Add(1);
    topic_ = "orders";
  }

  // Until the sink holds it, with what comes meanwhile.
  void AwaitOutstanding(Sequence sequence, milliseconds step) {
    for (int i = 0; i < 10'000; ++i) {
      const std::vector<Sequence> outstanding = sink_.outstanding();
      if (std::count(outstanding.begin(), outstanding.end(), sequence) != 0) {
        return;
      }
      Poll(std::min(step, milliseconds(100)));
    }
    FAIL() << "event " << sequence << " was not sent";
  }

  void Track(int count) {
    tracker_.BeginTransaction(base::Lsn(commit_lsn_ += 100));
    for (int i = 0; i < count; ++i) {
      const Sequence sequence = tracker_.next_sequence();
      const std::string text = "event " + std::to_string(sequence);
      envelope::Record record;
      record.block = tracker_.arena()->Allocate(text.size());
      text.copy(record.block.data, text.size());
      record.value = std::string_view(record.block.data, text.size());
      record.topic = topic_;
      record.key = kKeys.substr(sequence % kKeys.size(), 1);
      tracker_.Add(record, 0, base::WallTime(), 0);
    }
    tracker_.CommitTransaction(base::Lsn(commit_lsn_ + 8));
  }

  // As while reading: each event may be followed by another at once.
  void Gather(int count) {
    for (int i = 0; i < count; ++i) {
      Track(1);
      dispatcher_.Gather(now_);
    }
  }

  void Poll(milliseconds later = milliseconds(0)) {
    now_.mono += later;
    now_.wall += later;
    dispatcher_.Poll(now_);
  }

  // Lets the generation end, and waits for the next.
  void NextGeneration() {
    const std::size_t before = sink_.generations().size();
    for (int i = 0; i < 10 && sink_.generations().size() == before; ++i) {
      Poll(kBackOff);
    }
    ASSERT_EQ(sink_.generations().size(), before + 1);
  }

  // Everything outstanding is delivered, until nothing is tracked and a fast producer is back.
  void DeliverToTheEnd() {
    for (int i = 0; i < 100 && !(tracker_.empty() && dispatcher_.caught_up()); ++i) {
      if (!sink_.closed()) {
        sink_.DeliverAll();
      }
      Poll(kBackOff);
    }
    EXPECT_TRUE(tracker_.empty());
    EXPECT_TRUE(dispatcher_.caught_up());
  }

  // The values in the order they became visible, of the partition of `key`.
  std::vector<std::string> Visible(char key) {
    std::vector<std::string> values;
    for (const FakeSink::Submission& each :
         sink_.Log("orders", static_cast<unsigned char>(key) % FakeSink::kPartitions)) {
      values.push_back(*each.value);
    }
    return values;
  }

  Sink::Mode mode() const { return sink_.generation().mode; }

  static constexpr std::string_view kKeys = "abcd";

  base::Now now_{base::MonotonicTime(std::chrono::hours(1)), base::WallTime()};
  std::uint64_t commit_lsn_ = 0;
  delivery::Tracker tracker_;
  FakeSink sink_;
  Counters counters_;
  PipelineOptions options_;
  DeadLetters dead_letters_{options_, &tracker_};
  Decider decider_{options_, &tracker_, &counters_, &dead_letters_};
  const milliseconds unknown_topic_wait_;
  std::set<std::string> topics_;
  std::string_view topic_ = "orders";
  Dispatcher dispatcher_{
      {base::BackoffOptions{kBackOff, kBackOff, kBackOff}, 1, unknown_topic_wait_,
       std::chrono::microseconds(3'000), std::chrono::microseconds(20'000)},
      &tracker_,
      &sink_,
      &counters_,
      &decider_,
      &dead_letters_};
};

TEST_F(DispatcherTest, EventsAreSubmittedInOrderToAFastProducer) {
  Add(3);
  EXPECT_EQ(mode(), Sink::Mode::kFast);
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

TEST_F(DispatcherTest, GatheredEventsOfAGenerationThatFailsAreNotForgotten) {
  Add(1);
  Gather(2);
  sink_.FailGeneration("fatal");
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
  EXPECT_EQ(counters_.delivered_by_topic[0].second, 3U);
  EXPECT_EQ(counters_.records_resubmitted, 0U);
}

TEST_F(DispatcherTest, RecordRefusedForNowIsOfferedAgainAndNothingPassesIt) {
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

TEST_F(DispatcherTest, FailedReportEndsTheGenerationAndWhatIsLeftGoesThroughCarefulThenFast) {
  Add(6);  // 0 and 4 share a partition, and so do 1 and 5
  sink_.Deliver(0);
  sink_.Fail(1, FailureKind::kRecordTooLarge);  // it shared a batch with the culprit
  Poll();
  sink_.Deliver(2);  // was under way
  NextGeneration();
  EXPECT_EQ(mode(), Sink::Mode::kCareful);
  EXPECT_THAT(sink_.accepted(), ElementsAre(1)) << "one record outstanding";
  EXPECT_FALSE(dispatcher_.caught_up()) << "nothing new is read meanwhile";
  for (const Sequence next : {1U, 3U, 4U, 5U}) {
    ASSERT_THAT(sink_.outstanding(), ElementsAre(next));
    sink_.Deliver(next);
    Poll();
  }
  EXPECT_TRUE(tracker_.empty());
  NextGeneration();
  EXPECT_EQ(mode(), Sink::Mode::kFast);
  EXPECT_TRUE(dispatcher_.caught_up());
  EXPECT_FALSE(dispatcher_.verdict());
  EXPECT_THAT(Visible('a'), ElementsAre("event 0", "event 4"));
  EXPECT_THAT(Visible('b'), ElementsAre("event 1", "event 5"));
  EXPECT_EQ(counters_.records_resubmitted, 4U);
  EXPECT_EQ(counters_.producer_generations, 3U);
}

// Failure 79.
TEST_F(DispatcherTest, GenerationThatClosesWithoutReportsIsResubmittedToo) {
  sink_.CloseSilently(true);
  Add(3);
  sink_.Fail(0, FailureKind::kOther);
  NextGeneration();
  DeliverToTheEnd();
  EXPECT_EQ(counters_.events_delivered, 3U);
}

// Failure 71.
TEST_F(DispatcherTest, FailureOfTheGenerationBacksOffAndJudgesNobody) {
  Add(2);
  sink_.FailGeneration("fatal");
  Poll();
  Poll();
  ASSERT_TRUE(sink_.closed());
  EXPECT_EQ(dispatcher_.NextDeadline(), now_.mono + kBackOff);
  Poll(kBackOff - milliseconds(1));
  EXPECT_TRUE(sink_.closed());
  Poll(milliseconds(1));
  EXPECT_FALSE(sink_.closed());
  DeliverToTheEnd();
  EXPECT_FALSE(dispatcher_.verdict());
}

TEST_F(DispatcherTest, RecordRefusedInFastModeIsTriedAgainWithoutBackOff) {
  Add(1);
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Poll();
  EXPECT_EQ(sink_.generations().size(), 2U);
  EXPECT_EQ(mode(), Sink::Mode::kCareful);
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
  EXPECT_EQ(mode(), Sink::Mode::kCareful);
  ASSERT_THAT(sink_.outstanding(), ElementsAre(0));
  sink_.Fail(0, FailureKind::kRecordInvalid, "no good");
  Poll();
  EXPECT_TRUE(dispatcher_.verdict());
}

TEST_F(DispatcherTest, FailureOfOneRecordAloneIsAVerdict) {
  for (const FailureKind kind : {FailureKind::kRecordTooLarge, FailureKind::kRecordInvalid,
                                 FailureKind::kTopicInvalid, FailureKind::kTopicNotAuthorized}) {
    Add(1);
    const Sequence event = tracker_.oldest_unsettled();
    sink_.Fail(event, kind);
    Poll();
    ASSERT_EQ(mode(), Sink::Mode::kCareful);
    EXPECT_FALSE(dispatcher_.verdict()) << "in a batch it may have been another's fault";
    sink_.Fail(event, kind, "no good");
    Poll();
    ASSERT_TRUE(dispatcher_.verdict());
    EXPECT_EQ(dispatcher_.verdict()->sequence, event);
    EXPECT_THAT(dispatcher_.verdict()->halt.detail, HasSubstr("no good"));
    dispatcher_.ShutDown();
    Poll();
    tracker_.DiscardAll();
    dispatcher_.Start(now_);
  }
}

// UNKNOWN_SERVER_ERROR for a while says nothing about the record.
TEST_F(DispatcherTest, UnclearFailureIsNoVerdictWhileNothingElseIsDelivered) {
  Add(2);
  sink_.Fail(0, FailureKind::kOther);
  Poll();
  for (int attempt = 0; attempt < 5; ++attempt) {
    AwaitOutstanding(0, HeldTopics::kTryAgainMax);
    sink_.Fail(0, FailureKind::kOther, "who knows");
    Poll(HeldTopics::kUnclearFor);
    ASSERT_FALSE(dispatcher_.verdict());
  }
  AwaitOutstanding(0, HeldTopics::kTryAgainMax);
  DeliverToTheEnd();
  EXPECT_THAT(Visible('a'), ElementsAre("event 0"));
  EXPECT_THAT(Visible('b'), ElementsAre("event 1"));
}

TEST_F(DispatcherTest, UnclearFailureIsAVerdictAfterMinutesInWhichOthersWereDelivered) {
  Add(2);
  sink_.Fail(0, FailureKind::kOther);
  Poll();
  AwaitOutstanding(0, kBackOff);
  const base::MonotonicTime first_at = now_.mono;
  sink_.Fail(0, FailureKind::kOther, "who knows");
  Poll();
  AddTo("payments");
  AwaitOutstanding(2, kBackOff);
  sink_.Deliver(2);
  while (!dispatcher_.verdict()) {
    AwaitOutstanding(0, HeldTopics::kTryAgainMax);
    EXPECT_THAT(sink_.outstanding(), ElementsAre(0)) << "event 1 would overtake it";
    sink_.Fail(0, FailureKind::kOther, "still");
    Poll();
    ASSERT_LT(now_.mono, first_at + 2 * HeldTopics::kUnclearFor);
  }
  EXPECT_GE(now_.mono, first_at + HeldTopics::kUnclearFor);
  EXPECT_EQ(dispatcher_.verdict()->sequence, 0U);
  EXPECT_THAT(dispatcher_.verdict()->halt.detail, HasSubstr("still"));
}

TEST_F(DispatcherTest, OtherTopicsGoOnWhileOneIsLookedUp) {
  sink_.SetPending("orders", true);
  Add(2);
  AddTo("payments");
  EXPECT_THAT(sink_.outstanding(), ElementsAre(2));
  EXPECT_TRUE(dispatcher_.caught_up()) << "the next may be read";
  sink_.SetPending("orders", false);
  Poll();
  EXPECT_THAT(sink_.outstanding(), ElementsAre(2, 0, 1));
  DeliverToTheEnd();
}

class UnknownTopicTest : public DispatcherTest {
 protected:
  UnknownTopicTest() : DispatcherTest(milliseconds(10'000)) {
    sink_.RefuseTopic("orders", Failure{FailureKind::kTopicUnknown, "no such topic"});
  }

  // Polls whenever it wants to be, up to this long from the start.
  void PollUntil(milliseconds time) {
    while (now_.mono < kStart + time && !dispatcher_.verdict()) {
      const auto deadline = dispatcher_.NextDeadline().value_or(base::MonotonicTime::max());
      ASSERT_GT(deadline, now_.mono) << "it would spin";
      Poll(std::chrono::duration_cast<milliseconds>(std::min(deadline, kStart + time) - now_.mono));
    }
  }

  const base::MonotonicTime kStart = now_.mono;
};

TEST_F(UnknownTopicTest, IsAskedAboutAgainBeforeItIsBelieved) {
  Add(2);
  AddTo("payments");
  EXPECT_THAT(sink_.outstanding(), ElementsAre(2));
  PollUntil(milliseconds(9'999));
  EXPECT_FALSE(dispatcher_.verdict());
  EXPECT_GT(sink_.refusals("orders"), 4) << "a topic that is just being made is found soon";
  EXPECT_LT(sink_.refusals("orders"), 20);
  PollUntil(milliseconds(10'000));
  ASSERT_TRUE(dispatcher_.verdict());
  EXPECT_EQ(dispatcher_.verdict()->sequence, 0U);
}

TEST_F(UnknownTopicTest, IsUsedOnceItIsThereAndInOrder) {
  Add(2);
  PollUntil(milliseconds(300));
  sink_.TakeTopic("orders");
  Add(1);
  EXPECT_THAT(sink_.outstanding(), IsEmpty()) << "it is not asked about yet";
  PollUntil(milliseconds(1'000));
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0, 1, 2));
  DeliverToTheEnd();
}

TEST_F(UnknownTopicTest, OfWhichThereAreManyIsAskedAboutTwice) {
  for (std::size_t i = 0; i < 2 * HeldTopics::kMany; ++i) {
    const std::string topic = "missing-" + std::to_string(i);
    sink_.RefuseTopic(topic, Failure{FailureKind::kTopicUnknown, "no such topic"});
    AddTo(topic);
  }
  AddTo("payments");
  EXPECT_THAT(sink_.outstanding(), ElementsAre(2 * HeldTopics::kMany));
  PollUntil(milliseconds(10'000));
  EXPECT_EQ(sink_.refusals("missing-150"), 1);
}

TEST_F(DispatcherTest, EndedGenerationIsNeverAVerdict) {
  Add(1);
  for (int i = 0; i < 20; ++i) {
    sink_.Fail(0, FailureKind::kGenerationEnded);
    NextGeneration();
    ASSERT_EQ(mode(), Sink::Mode::kCareful);
  }
  EXPECT_FALSE(dispatcher_.verdict());
  DeliverToTheEnd();
}

TEST_F(DispatcherTest, RecordTheSinkRefusesIsAVerdictAndNothingAfterItIsSubmitted) {
  sink_.Refuse(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  Add(3);
  ASSERT_TRUE(dispatcher_.verdict());
  EXPECT_EQ(dispatcher_.verdict()->sequence, 1U);
  EXPECT_THAT(sink_.accepted(), ElementsAre(0));
  sink_.DeliverAll();
  Poll();
  EXPECT_THAT(sink_.accepted(), ElementsAre(0));
  EXPECT_EQ(tracker_.oldest_unsettled(), 1U);
}

TEST_F(DispatcherTest, WhatCameBeforeARefusedRecordIsResubmittedWhenItsGenerationFails) {
  sink_.Refuse(2, Failure{FailureKind::kRecordTooLarge, "too large"});
  Add(4);
  ASSERT_TRUE(dispatcher_.verdict());
  sink_.FailGeneration("fatal");
  NextGeneration();
  for (const Sequence next : {0U, 1U}) {
    ASSERT_THAT(sink_.outstanding(), ElementsAre(next));
    sink_.Deliver(next);
    Poll();
  }
  EXPECT_EQ(tracker_.oldest_unsettled(), 2U);
  EXPECT_THAT(sink_.outstanding(), IsEmpty());
}

TEST_F(DispatcherTest, BackOffGrowsUntilSomethingIsDelivered) {
  const base::BackoffOptions growing{milliseconds(1'000), milliseconds(64'000), milliseconds(900)};
  FakeSink sink;
  Dispatcher dispatcher({growing, 7, milliseconds(0)}, &tracker_, &sink, &counters_, &decider_,
                        &dead_letters_);
  dispatcher.Start(now_);
  Add(1);
  dispatcher.Pump();
  const auto fail = [&] {
    sink.FailGeneration("fatal");
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
  dispatcher.Poll(now_);  // and on to the fast one
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
  EXPECT_EQ(sink_.generations().size(), 1U) << "no further generation";
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
  sink_.FailGeneration("fatal");
  Poll();
  Poll();
  dispatcher_.ShutDown();
  EXPECT_TRUE(dispatcher_.idle());
  Poll(milliseconds(60'000));
  EXPECT_TRUE(sink_.closed());
}

TEST_F(DispatcherTest, ShutDownWhileAGenerationIsEndingOpensNoOther) {
  Add(1);
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  sink_.HoldClose(true);
  Poll();
  dispatcher_.ShutDown();
  sink_.HoldClose(false);
  Poll();
  Poll(milliseconds(60'000));
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(sink_.generations().size(), 1U);
}

TEST_F(DispatcherTest, StartAfterShutDownForgetsTheVerdict) {
  sink_.Refuse(0, Failure{FailureKind::kTopicUnknown, "no such topic"});
  Add(1);
  ASSERT_TRUE(dispatcher_.verdict());
  dispatcher_.ShutDown();
  Poll();
  ASSERT_TRUE(dispatcher_.idle());
  tracker_.DiscardAll();
  sink_.StopRefusing();
  dispatcher_.Start(now_);
  EXPECT_FALSE(dispatcher_.verdict());
  Add(1);
  DeliverToTheEnd();
  EXPECT_EQ(counters_.records_resubmitted, 0U);
}

}  // namespace
}  // namespace walpost::pipeline
