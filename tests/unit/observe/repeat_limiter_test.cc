#include "observe/repeat_limiter.h"

#include <gtest/gtest.h>

#include <string>

namespace walpost::observe {
namespace {

using base::LogEvent;
using std::chrono::seconds;

class RepeatLimiterTest : public ::testing::Test {
 protected:
  std::optional<std::uint64_t> Take(const std::string& cause,
                                    LogEvent event = LogEvent::kSourceError) {
    return limiter_.Take(event, cause, now_);
  }

  RepeatLimiter limiter_;
  base::MonotonicTime now_{std::chrono::hours(1)};
};

TEST_F(RepeatLimiterTest, FirstIsWrittenAtOnceAndItsRepeatsAreCounted) {
  EXPECT_EQ(Take("refused"), 0U);
  for (int second = 1; second < RepeatLimiter::kEvery.count(); ++second) {
    now_ += seconds(1);
    EXPECT_EQ(Take("refused"), std::nullopt);
  }
  now_ += seconds(1);
  EXPECT_EQ(Take("refused"), 9U);
  now_ += seconds(1);
  EXPECT_EQ(Take("refused"), std::nullopt) << "another interval";
  now_ += RepeatLimiter::kEvery;
  EXPECT_EQ(Take("refused"), 1U) << "each is counted once";
}

TEST_F(RepeatLimiterTest, AnotherCauseOrAnotherEventIsNews) {
  EXPECT_EQ(Take("refused"), 0U);
  EXPECT_EQ(Take("timed out"), 0U);
  EXPECT_EQ(Take("refused", LogEvent::kKafkaLog), 0U);
  EXPECT_EQ(Take("refused"), std::nullopt);
}

TEST_F(RepeatLimiterTest, AfterAQuietIntervalNothingWasLeftOut) {
  EXPECT_EQ(Take("refused"), 0U);
  now_ += RepeatLimiter::kEvery;
  EXPECT_EQ(Take("refused"), 0U);
}

TEST_F(RepeatLimiterTest, OfVeryManyCausesTheOldestIsForgottenAndWrittenAgain) {
  for (std::size_t cause = 0; cause <= RepeatLimiter::kCausesMax; ++cause) {
    EXPECT_EQ(Take(std::to_string(cause)), 0U);
    now_ += std::chrono::milliseconds(1);
  }
  EXPECT_EQ(Take("0"), 0U);
  EXPECT_EQ(Take(std::to_string(RepeatLimiter::kCausesMax)), std::nullopt);
}

}  // namespace
}  // namespace walpost::observe
