// What is known of topics, and events that wait for theirs.
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
using ::testing::SizeIs;

TEST_F(DispatcherTest, UnclearFailureDecidesNothingWhileNothingElseIsDelivered) {
  Add(2);
  sink_.Fail(0, FailureKind::kOther);
  Poll();
  for (int attempt = 0; attempt < 5; ++attempt) {
    AwaitOutstanding(0, HeldTopics::kTryAgainMax);
    sink_.Fail(0, FailureKind::kOther, "who knows");
    Poll(HeldTopics::kUnclearFor);
    ASSERT_FALSE(dispatcher_.halt_at());
  }
  AwaitOutstanding(0, HeldTopics::kTryAgainMax);
  DeliverToTheEnd();
  EXPECT_THAT(Visible('a'), ElementsAre("event 0"));
  EXPECT_THAT(Visible('b'), ElementsAre("event 1"));
}

TEST_F(DispatcherTest, UnclearFailureDecidesAfterMinutesInWhichOthersWereDelivered) {
  Add(2);
  sink_.Fail(0, FailureKind::kOther);
  Poll();
  AwaitOutstanding(0, kBackOff);
  const base::MonotonicTime first_at = now_.mono;
  sink_.Fail(0, FailureKind::kOther, "who knows");
  Poll();
  for (delivery::Sequence other = 2; !dispatcher_.halt_at(); ++other) {
    AddTo("payments");
    AwaitOutstanding(other, HeldTopics::kTryAgainMax);
    sink_.Deliver(other);
    AwaitOutstanding(0, HeldTopics::kTryAgainMax);
    sink_.Fail(0, FailureKind::kOther, "still");
    Poll();
    ASSERT_LT(now_.mono, first_at + 2 * HeldTopics::kUnclearFor);
  }
  EXPECT_GE(now_.mono, first_at + HeldTopics::kUnclearFor);
  EXPECT_EQ(dispatcher_.halt_at()->sequence, 0U);
  EXPECT_THAT(dispatcher_.halt_at()->halt.detail, HasSubstr("still"));
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
    sink_.RejectTopic("orders", Failure{FailureKind::kTopicUnknown, "no such topic"});
  }

  // Polls whenever it wants to be, up to this long from the start.
  void PollUntil(milliseconds time) {
    while (now_.mono < kStart + time && !dispatcher_.halt_at()) {
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
  EXPECT_FALSE(dispatcher_.halt_at());
  EXPECT_GT(sink_.rejections("orders"), 4) << "a topic that is just being made is found soon";
  EXPECT_LT(sink_.rejections("orders"), 20);
  PollUntil(milliseconds(10'000));
  ASSERT_TRUE(dispatcher_.halt_at());
  EXPECT_EQ(dispatcher_.halt_at()->sequence, 0U);
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
    sink_.RejectTopic(topic, Failure{FailureKind::kTopicUnknown, "no such topic"});
    AddTo(topic);
  }
  AddTo("payments");
  EXPECT_THAT(sink_.outstanding(), ElementsAre(2 * HeldTopics::kMany));
  PollUntil(milliseconds(10'000));
  EXPECT_EQ(sink_.rejections("missing-150"), 1);
}

// A broker learns of a right later than another; nothing of the topic may pass the event meanwhile.
TEST_F(UnknownTopicTest, ThatIsNotAuthorizedForAWhileIsUsedAfterwards) {
  sink_.RejectTopic("orders", Failure{FailureKind::kTopicNotAuthorized, "no right"});
  Add(2);
  PollUntil(milliseconds(300));
  EXPECT_FALSE(dispatcher_.halt_at());
  sink_.TakeTopic("orders");
  PollUntil(milliseconds(1'000));
  EXPECT_THAT(sink_.outstanding(), ElementsAre(0, 1));
  DeliverToTheEnd();
}

TEST_F(UnknownTopicTest, ThatMayNotBeWrittenIsBelievedAfterTheSameTime) {
  sink_.TakeTopic("orders");
  Add(2);
  sink_.Fail(0, FailureKind::kTopicNotAuthorized);
  Poll();
  while (!dispatcher_.halt_at()) {
    AwaitOutstanding(0, kBackOff);
    sink_.Fail(0, FailureKind::kTopicNotAuthorized, "no right");
    Poll();
    ASSERT_LT(now_.mono, kStart + milliseconds(60'000));
  }
  EXPECT_GE(now_.mono, kStart + milliseconds(10'000)) << "though nothing else was delivered";
  EXPECT_EQ(dispatcher_.halt_at()->sequence, 0U);
}

// With a record in each of several partitions, of which another one fails first each time.
TEST_F(UnknownTopicTest, ThatMayNotBeWrittenIsDecidedInTimeAndHoldsNoOther) {
  sink_.TakeTopic("orders");
  Add(4);
  sink_.Fail(3, FailureKind::kTopicNotAuthorized);
  Poll();
  int tries = 0;
  while (!dispatcher_.halt_at()) {
    AddTo("payments");
    Poll(kBackOff);
    for (const Sequence sequence : sink_.outstanding()) {
      if (sequence >= 4) {
        sink_.Deliver(sequence);
      }
    }
    std::vector<Sequence> of_orders = sink_.outstanding();
    std::erase_if(of_orders, [](Sequence sequence) { return sequence >= 4; });
    if (!of_orders.empty()) {
      EXPECT_THAT(of_orders, SizeIs(tries == 0 ? 4 : 1)) << "the others wait once it is known";
      ++tries;
      sink_.Fail(of_orders.back(), FailureKind::kTopicNotAuthorized, "no right");
    }
    Poll(kBackOff);
    ASSERT_LT(now_.mono, kStart + milliseconds(20'000));
  }
  EXPECT_GE(now_.mono, kStart + milliseconds(10'000));
  EXPECT_LT(tries, 20);
  EXPECT_GE(counters_.events_delivered, tracker_.next_sequence() - 4 - 3);
}

// A pipelined producer fails as a whole, and never says what the record's own answer is.
TEST_F(UnknownTopicTest, RecordWithAnUnclearAnswerIsSentByCarefulProducersOnly) {
  sink_.TakeTopic("orders");
  Add(1);
  sink_.Fail(0, FailureKind::kTopicNotAuthorized);
  Poll();
  for (int i = 0; i < 1'000 && !dispatcher_.halt_at(); ++i) {
    sink_.SetPending("orders", true);  // each producer looks its topics up anew
    Poll(kBackOff);
    sink_.SetPending("orders", false);
    Poll();
    if (!sink_.outstanding().empty()) {
      ASSERT_EQ(mode(), Sink::Mode::kOneAtATime);
      sink_.Fail(0, FailureKind::kTopicNotAuthorized, "no right");
      Poll();
    }
  }
  ASSERT_TRUE(dispatcher_.halt_at());
  EXPECT_EQ(dispatcher_.halt_at()->sequence, 0U);
}

}  // namespace
}  // namespace walpost::pipeline
