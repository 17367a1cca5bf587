#include "pipeline/stage_times.h"

#include <gtest/gtest.h>

namespace walpost::pipeline {
namespace {

using std::chrono::milliseconds;

class StageTimesTest : public ::testing::Test {
 protected:
  void Advance(milliseconds time) {
    now_.mono += time;
    now_.wall += time;
  }

  void Take() { times_.OnTaken(now_.wall - milliseconds(70), now_); }

  const StageHistograms& stages() const { return counters_.stages; }

  base::Now now_{base::MonotonicTime(std::chrono::hours(1)),
                 base::WallTime(std::chrono::seconds(1'700'000'000))};
  Counters counters_;
  StageTimes times_{&counters_};
};

TEST_F(StageTimesTest, EachStageIsSampledOnceForABatch) {
  EXPECT_TRUE(times_.wants_event());
  Take();
  EXPECT_FALSE(times_.wants_event()) << "the others of the batch waited less";
  Advance(milliseconds(3));
  times_.OnSubmitted(100, 100, now_);
  Advance(milliseconds(40));
  times_.OnSettled(99, now_);
  EXPECT_EQ(stages().produce.Total(), 0U) << "one of them is not acknowledged";
  times_.OnSettled(100, now_);
  EXPECT_EQ(stages().source.Total(), 1U);
  EXPECT_NEAR(stages().source.sum_seconds, 0.070, 1e-9);
  EXPECT_EQ(stages().queue.Total(), 1U);
  EXPECT_NEAR(stages().queue.sum_seconds, 0.003, 1e-9);
  EXPECT_EQ(stages().produce.Total(), 1U);
  EXPECT_NEAR(stages().produce.sum_seconds, 0.040, 1e-9);
  EXPECT_TRUE(times_.wants_event());
}

TEST_F(StageTimesTest, WhatGoesOutInTheSameMomentIsOneBatch) {
  Take();
  for (delivery::Sequence cursor = 1; cursor <= 5; ++cursor) {
    times_.OnSubmitted(cursor, 5, now_);
  }
  Advance(milliseconds(10));
  times_.OnSettled(5, now_);
  EXPECT_EQ(stages().queue.Total(), 1U);
  EXPECT_EQ(stages().produce.Total(), 1U);
}

TEST_F(StageTimesTest, EventThatHadToWaitIsCountedWithItsWholeWait) {
  Take();
  times_.OnSubmitted(1, 3, now_);
  Advance(milliseconds(500));
  times_.OnSubmitted(3, 3, now_);
  EXPECT_EQ(stages().queue.Total(), 2U);
  EXPECT_NEAR(stages().queue.sum_seconds, 0.5, 1e-9);
}

TEST_F(StageTimesTest, ResubmissionBelongsToTheFirstTry) {
  Take();
  times_.OnSubmitted(2, 2, now_);
  Advance(milliseconds(900));
  times_.OnSubmitted(1, 2, now_);
  times_.OnSubmitted(2, 2, now_);
  Advance(milliseconds(100));
  times_.OnSettled(2, now_);
  EXPECT_EQ(stages().produce.Total(), 1U);
  EXPECT_NEAR(stages().produce.sum_seconds, 1.0, 1e-9);
}

TEST_F(StageTimesTest, WhatIsGivenUpIsNotAcknowledged) {
  Take();
  times_.OnSubmitted(2, 2, now_);
  times_.Forget();
  times_.OnSettled(2, now_);
  EXPECT_EQ(stages().produce.Total(), 0U);
  EXPECT_TRUE(times_.wants_event());
}

}  // namespace
}  // namespace walpost::pipeline
