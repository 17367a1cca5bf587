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

  HeldTopics topics_{kWait};
  base::MonotonicTime now_{milliseconds(1'000'000)};
};

TEST_F(HeldTopicsTest, AnswerThatLastedDecides) {
  EXPECT_FALSE(Unknown());
  now_ += kWait;
  EXPECT_TRUE(Unknown());
  EXPECT_EQ(topics_.Next("orders", now_), HeldTopics::Step::kDecide);
}

TEST_F(HeldTopicsTest, AnswerFromLongAgoDoesNotCount) {
  EXPECT_FALSE(Unknown());
  now_ += HeldTopics::kForgottenAfter;
  EXPECT_FALSE(Unknown());
}

TEST_F(HeldTopicsTest, DecisionFromLongAgoDoesNotCount) {
  EXPECT_FALSE(Unknown());
  now_ += kWait;
  EXPECT_TRUE(Unknown());
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

}  // namespace
}  // namespace walpost::pipeline
