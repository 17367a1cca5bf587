#include "pipeline/held_topics.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace walpost::pipeline {
namespace {

using delivery::Failure;
using delivery::FailureKind;
using std::chrono::milliseconds;

constexpr milliseconds kWait{10'000};
constexpr milliseconds kForEver = std::chrono::hours(1);

class HeldTopicsTest : public ::testing::Test {
 protected:
  bool Unknown() {
    Failure failure{FailureKind::kTopicUnknown, "no such topic"};
    failure.contradicted_at = contradicted_at_;
    failure.silent = silent_;
    return topics_.OnRejected("orders", failure, now_);
  }

  // Each answer says so, until that decides.
  void AwaitUnknown(milliseconds wait = kWait) {
    const base::MonotonicTime since = now_;
    while (!Unknown()) {
      ASSERT_LT(now_, since + 2 * wait);
      now_ += HeldTopics::kTryAgainMin;
    }
    EXPECT_GE(now_, since + wait);
  }

  // Whether it decides.
  bool Fails(delivery::Sequence sequence, FailureKind kind, std::uint64_t delivered = 0) {
    const Failure failure{kind, "no", /*must_last=*/kind == FailureKind::kTopicNotAuthorized};
    return topics_.OnUnclear(record_, sequence, failure, delivered, now_).decided;
  }

  void AwaitMissingRight() {
    const base::MonotonicTime since = now_;
    while (!Fails(1, FailureKind::kTopicNotAuthorized)) {
      ASSERT_LT(now_, since + 2 * kWait);
      now_ += HeldTopics::kTryAgainMin;
    }
  }

  envelope::Record record_ = [] {
    envelope::Record record;
    record.topic = "orders";
    return record;
  }();
  delivery::LastingRejections rejections_{kWait};
  HeldTopics topics_{kWait, &rejections_};
  std::optional<base::MonotonicTime> contradicted_at_;
  bool silent_ = false;
  base::MonotonicTime now_{milliseconds(1'000'000)};
};

TEST_F(HeldTopicsTest, AnswerThatLastedDecides) {
  AwaitUnknown();
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kDecide);
}

TEST_F(HeldTopicsTest, AnswerThatABrokerContradictedMustLastAnew) {
  for (const base::MonotonicTime end = now_ + kWait - HeldTopics::kTryAgainMin; now_ < end;
       now_ += HeldTopics::kTryAgainMin) {
    EXPECT_FALSE(Unknown());
  }
  contradicted_at_ = now_;
  now_ += HeldTopics::kTryAgainMin;
  AwaitUnknown();
}

TEST_F(HeldTopicsTest, AnswerOfOnlySomeBrokersMustLastSixTimesAsLong) {
  silent_ = true;
  AwaitUnknown(6 * kWait);
}

// The one that was silent may be behind for a moment.
TEST_F(HeldTopicsTest, AnswersOfAllBrokersMustLastThemselvesAfterThoseOfSome) {
  silent_ = true;
  for (const base::MonotonicTime end = now_ + 3 * kWait; now_ < end;
       now_ += HeldTopics::kTryAgainMin) {
    EXPECT_FALSE(Unknown());
  }
  silent_ = false;
  AwaitUnknown();
}

TEST_F(HeldTopicsTest, AnswerOfOnlySomeBrokersDoesNotCountForWhatAllHadSaid) {
  AwaitUnknown();
  silent_ = true;
  EXPECT_FALSE(Unknown());
  AwaitUnknown(5 * kWait);
}

TEST_F(HeldTopicsTest, ManyTopicsWaitThenEachIsTriedAtTheEndHoweverLongTheWait) {
  for (const milliseconds wait : {milliseconds(10'000), milliseconds(100'000), kForEver}) {
    for (const bool silent : {false, true}) {
      HeldTopics topics(wait, &rejections_);
      Failure failure{FailureKind::kTopicUnknown, "no such topic"};
      failure.silent = silent;
      for (std::size_t i = 0; i <= HeldTopics::kMany; ++i) {
        topics.Hold("t" + std::to_string(i), i);
      }
      EXPECT_FALSE(topics.OnRejected("orders", failure, now_));
      topics.Hold("orders", 1'000);
      for (int times = silent ? 6 : 1; times > 0; --times) {
        EXPECT_EQ(topics.NextDeadline(), now_ + wait);
        now_ += wait;
        topics.Due(now_);
        topics.Wait("orders");
        EXPECT_EQ(topics.OnRejected("orders", failure, now_), times == 1);
      }
    }
  }
}

// One that nothing is delivered of says nothing about the record: the broker may take none at all.
TEST_F(HeldTopicsTest, TimeInWhichNoOtherTopicGoesOnDoesNotCount) {
  constexpr FailureKind kUnclear = FailureKind::kOther;
  std::uint64_t delivered = 0;
  const auto pass_all_of_it = [&] {
    for (const base::MonotonicTime end = now_ + 2 * HeldTopics::kUnclearFor; now_ < end;
         now_ += HeldTopics::kTryAgainMax) {
      EXPECT_FALSE(Fails(1, kUnclear, delivered));
    }
  };
  EXPECT_FALSE(Fails(1, kUnclear, delivered));
  now_ += HeldTopics::kTryAgainMin;
  ++delivered;
  pass_all_of_it();
  ++delivered;
  topics_.OnDelivered("orders", 2);
  pass_all_of_it();
  const base::MonotonicTime since = now_;
  for (; !Fails(1, kUnclear, ++delivered); now_ += HeldTopics::kTryAgainMax) {
    ASSERT_LT(now_, since + 2 * HeldTopics::kUnclearFor);
  }
  EXPECT_GE(now_ + HeldTopics::kTryAgainMax, since + HeldTopics::kUnclearFor);
}

TEST_F(HeldTopicsTest, AnswerFromLongAgoDoesNotCount) {
  EXPECT_FALSE(Unknown());
  now_ += HeldTopics::kForgottenAfter;
  EXPECT_FALSE(Unknown());
}

TEST_F(HeldTopicsTest, DecisionFromLongAgoDoesNotCount) {
  AwaitUnknown();
  now_ += 2 * kWait;
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kTry);
  EXPECT_FALSE(Unknown());
}

TEST_F(HeldTopicsTest, UnclearAnswerOfAnotherRecordDoesNotCount) {
  std::uint64_t delivered = 0;
  for (const base::MonotonicTime end = now_ + HeldTopics::kUnclearFor; now_ < end;
       now_ += HeldTopics::kTryAgainMax) {
    EXPECT_FALSE(Fails(1, FailureKind::kOther, ++delivered));
  }
  EXPECT_FALSE(Fails(2, FailureKind::kOther, ++delivered));
}

// Which of a topic's partitions answers first is chance.
TEST_F(HeldTopicsTest, MissingRightThatRecordsInTurnGetDecides) {
  const base::MonotonicTime since = now_;
  delivery::Sequence sequence = 0;
  while (!Fails(++sequence % 7, FailureKind::kTopicNotAuthorized)) {
    ASSERT_LT(now_, since + 2 * kWait);
    now_ += HeldTopics::kTryAgainMin;
  }
  EXPECT_GE(now_, since + kWait);
}

TEST_F(HeldTopicsTest, MissingRightIsDecidedThenItCountsForTheNextRecordsUntilItIsAskedAboutAgain) {
  AwaitMissingRight();
  topics_.OnDecided("orders", 1);
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kDecide);
  EXPECT_EQ(topics_.rejection("orders").kind, FailureKind::kTopicNotAuthorized);
  now_ += HeldTopics::kAnswerKept;
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kTry);
  EXPECT_TRUE(Fails(2, FailureKind::kTopicNotAuthorized));
}

TEST_F(HeldTopicsTest, RecordIsDeliveredAfterAMissingRightThenTheTimeBeginsAnew) {
  AwaitMissingRight();
  topics_.OnDelivered("orders", 3);
  rejections_.OnTaken(record_, now_);
  EXPECT_FALSE(topics_.IsUnclear("orders"));
  EXPECT_FALSE(Fails(4, FailureKind::kTopicNotAuthorized));
}

// Other records of the topic may be taken.
TEST_F(HeldTopicsTest, RejectedRecordWhoseAnswerLastedThenTheNextOneIsTriedAtOnce) {
  const Failure too_large{FailureKind::kRecordTooLarge, "too large", /*must_last=*/true};
  while (!topics_.OnUnclear(record_, 1, too_large, 0, now_).decided) {
    now_ += HeldTopics::kTryAgainMin;
  }
  topics_.OnDecided("orders", 1);
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kTry);
  EXPECT_TRUE(topics_.OnUnclear(record_, 2, too_large, 0, now_).decided);
}

TEST_F(HeldTopicsTest, AnotherAnswerInBetweenBeginsTheTimeOfARejectionAnew) {
  const Failure too_large{FailureKind::kRecordTooLarge, "too large", /*must_last=*/true};
  for (const base::MonotonicTime end = now_ + kWait - HeldTopics::kTryAgainMin; now_ < end;
       now_ += HeldTopics::kTryAgainMin) {
    EXPECT_FALSE(topics_.OnUnclear(record_, 1, too_large, 0, now_).decided);
  }
  EXPECT_FALSE(Fails(1, FailureKind::kOther));
  now_ += HeldTopics::kTryAgainMin;
  EXPECT_FALSE(topics_.OnUnclear(record_, 1, too_large, 0, now_).decided);
}

// A look-up of the topic that finds it contradicts it.
TEST_F(HeldTopicsTest, LeaderThatDoesNotKnowTheTopicDecidesAboutOneRecord) {
  std::uint64_t delivered = 0;
  while (!Fails(1, FailureKind::kTopicUnknown, ++delivered)) {
    now_ += HeldTopics::kTryAgainMax;
  }
  topics_.OnDecided("orders", 1);
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kTry);
}

// It has a time of its own, of which the first attempts come soon.
TEST_F(HeldTopicsTest, MuchSmallerRecordIsRejectedAfterALargeOneThenItIsTriedAgainSoon) {
  const Failure too_large{FailureKind::kRecordTooLarge, "too large", /*must_last=*/true};
  const std::string bytes(100'000, 'x');
  record_.value = bytes;
  while (!topics_.OnUnclear(record_, 1, too_large, 0, now_).decided) {
    now_ += HeldTopics::kTryAgainMin;
  }
  topics_.OnDecided("orders", 1);
  record_.value = "x";
  EXPECT_FALSE(topics_.OnUnclear(record_, 2, too_large, 0, now_).decided);
  EXPECT_EQ(topics_.Next("orders", now_ + HeldTopics::kTryAgainMin), HeldTopics::Step::kTry);
}

// A broker that gives the right after more than kAnswerKept is asked in between.
TEST_F(HeldTopicsTest, MissingRightMustLastAgainThenTheNextRecordIsNotDecidedByTheOneOfBefore) {
  HeldTopics topics(std::chrono::minutes(10), &rejections_);
  const Failure no_right{FailureKind::kTopicNotAuthorized, "no", /*must_last=*/true};
  while (!topics.OnUnclear(record_, 1, no_right, 0, now_).decided) {
    now_ += HeldTopics::kTryAgainMin;
  }
  topics.OnDecided("orders", 1);
  now_ += std::chrono::minutes(1);
  EXPECT_FALSE(topics.OnUnclear(record_, 2, no_right, 0, now_).decided);
  EXPECT_EQ(topics.Next("orders", now_), HeldTopics::Step::kWait);
}

TEST_F(HeldTopicsTest, RecordOfAnUnclearTopicIsWithTheSinkThenTheOthersWaitForIt) {
  Fails(1, FailureKind::kOther);
  now_ += HeldTopics::kTryAgainMin;
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kTry);
  topics_.OnAccepted("orders");
  topics_.Hold("orders", 2);
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kWait);
  topics_.OnDelivered("orders", 1);
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kTry);
  EXPECT_EQ(topics_.Due(now_), "orders");
}

// Of another partition, and older than the one in trouble.
TEST_F(HeldTopicsTest, AnotherRecordOfAnUnclearTopicIsDeliveredThenTheNextIsDueAndTheTimeRunsOn) {
  Fails(5, FailureKind::kOther);
  now_ += HeldTopics::kTryAgainMin;
  topics_.OnAccepted("orders");
  topics_.Hold("orders", 5);
  topics_.OnDelivered("orders", 3);
  EXPECT_EQ(topics_.Due(now_), "orders");
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kTry);
  EXPECT_TRUE(topics_.IsUnclear("orders"));
}

TEST_F(HeldTopicsTest, AnswerOfAnotherKindBeginsTheTimeAnew) {
  const base::MonotonicTime end = now_ + kWait;
  for (; now_ < end; now_ += HeldTopics::kTryAgainMin) {
    EXPECT_FALSE(Unknown());
  }
  EXPECT_FALSE(
      topics_.OnRejected("orders", Failure{FailureKind::kTopicNotAuthorized, "no right"}, now_));
  now_ += HeldTopics::kTryAgainMin;
  EXPECT_FALSE(Unknown());
}

TEST_F(HeldTopicsTest, OneMissingRightAfterUnclearAnswersDecidesNothing) {
  for (const base::MonotonicTime end = now_ + kWait; now_ <= end;
       now_ += HeldTopics::kTryAgainMin) {
    Fails(1, FailureKind::kOther);
  }
  EXPECT_FALSE(Fails(1, FailureKind::kTopicNotAuthorized));
}

// A broker that is away in between gives no answer.
TEST_F(HeldTopicsTest, TwoAnswersWithNoneBetweenThemDecideNothing) {
  EXPECT_FALSE(Fails(1, FailureKind::kTopicNotAuthorized));
  now_ += 10 * kWait;
  EXPECT_FALSE(Fails(1, FailureKind::kTopicNotAuthorized));
}

}  // namespace
}  // namespace walpost::pipeline
