#include "pipeline/held_topics.h"

#include <chrono>

#include "gtest/gtest.h"

namespace walpost::pipeline {
namespace {

using delivery::Failure;
using delivery::FailureKind;
using std::chrono::milliseconds;

constexpr milliseconds kWait{10'000};

class HeldTopicsTest : public ::testing::Test {
 protected:
  bool Unknown() {
    return topics_.OnRejected("orders", Failure{FailureKind::kTopicUnknown, "no such topic"}, now_);
  }

  // Each answer says so, until that decides.
  void AwaitUnknown() {
    const base::MonotonicTime since = now_;
    while (!Unknown()) {
      ASSERT_LT(now_, since + 2 * kWait);
      now_ += HeldTopics::kTryAgainMin;
    }
    EXPECT_GE(now_, since + kWait);
  }

  HeldTopics topics_{kWait};
  base::MonotonicTime now_{milliseconds(1'000'000)};
};

TEST_F(HeldTopicsTest, AnswerThatLastedDecides) {
  AwaitUnknown();
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kDecide);
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
  topics_.OnUnclear("orders", 1, FailureKind::kTopicNotAuthorized, 0, now_);
  now_ += kWait;
  EXPECT_FALSE(topics_.OnUnclear("orders", 2, FailureKind::kTopicNotAuthorized, 0, now_).decided);
  EXPECT_TRUE(topics_.IsUnclear("orders", 2));
  EXPECT_FALSE(topics_.IsUnclear("orders", 1));
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
    topics_.OnUnclear("orders", 1, FailureKind::kOther, 0, now_);
  }
  EXPECT_FALSE(topics_.OnUnclear("orders", 1, FailureKind::kTopicNotAuthorized, 0, now_).decided);
}

// A broker that is away in between gives no answer.
TEST_F(HeldTopicsTest, TwoAnswersWithNoneBetweenThemDecideNothing) {
  const auto missing_right = [this] {
    return topics_.OnUnclear("orders", 1, FailureKind::kTopicNotAuthorized, 0, now_).decided;
  };
  EXPECT_FALSE(missing_right());
  now_ += 10 * kWait;
  EXPECT_FALSE(missing_right());
}

TEST_F(HeldTopicsTest, MissingRightThatLastsDecides) {
  const auto missing_right = [this] {
    return topics_.OnUnclear("orders", 1, FailureKind::kTopicNotAuthorized, 0, now_).decided;
  };
  const base::MonotonicTime since = now_;
  while (!missing_right()) {
    ASSERT_LT(now_, since + 2 * kWait);
    now_ += HeldTopics::kTryAgainMin;
  }
  EXPECT_GE(now_, since + kWait);
}

}  // namespace
}  // namespace walpost::pipeline
