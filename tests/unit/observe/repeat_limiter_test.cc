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

  // Until one is left out.
  int TakeAll(const std::string& cause) {
    int taken = 0;
    while (Take(cause)) {
      ++taken;
    }
    return taken;
  }

  RepeatLimiter limiter_;
  base::MonotonicTime now_{std::chrono::hours(1)};
};

TEST_F(RepeatLimiterTest, OneThatGoesOnIsWrittenEachIntervalAndTheOthersAreCounted) {
  EXPECT_EQ(TakeAll("rejected"), RepeatLimiter::kAtOnce);
  for (int second = 1; second < RepeatLimiter::kEvery.count(); ++second) {
    now_ += seconds(1);
    EXPECT_EQ(Take("rejected"), std::nullopt) << second;
  }
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), 10U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), std::nullopt) << "another interval";
  now_ += RepeatLimiter::kEvery;
  EXPECT_EQ(Take("rejected"), 1U) << "each is counted once";
}

// Lost, back, and lost again for the same cause.
TEST_F(RepeatLimiterTest, TwoMoreOutagesThatFollowAtOnceAreWritten) {
  EXPECT_EQ(Take("rejected"), 0U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), 0U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), 0U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), std::nullopt) << "it flaps";
}

TEST_F(RepeatLimiterTest, AnotherCauseOrAnotherEventIsNews) {
  EXPECT_EQ(TakeAll("rejected"), RepeatLimiter::kAtOnce);
  EXPECT_EQ(Take("timed out"), 0U);
  EXPECT_EQ(Take("rejected", LogEvent::kKafkaLog), 0U);
  EXPECT_EQ(Take("rejected"), std::nullopt);
}

TEST_F(RepeatLimiterTest, AfterAQuietTimeItBeginsAnew) {
  EXPECT_EQ(TakeAll("rejected"), RepeatLimiter::kAtOnce);
  now_ += RepeatLimiter::kAtOnce * RepeatLimiter::kEvery;
  EXPECT_EQ(Take("rejected"), 1U);
  EXPECT_EQ(Take("rejected"), 0U);
  EXPECT_EQ(Take("rejected"), 0U);
  EXPECT_EQ(Take("rejected"), std::nullopt);
}

TEST_F(RepeatLimiterTest, OfVeryManyCausesTheOldestIsForgottenAndWrittenAgain) {
  for (std::size_t cause = 0; cause <= RepeatLimiter::kCausesMax; ++cause) {
    EXPECT_EQ(Take(std::to_string(cause)), 0U);
    now_ += std::chrono::milliseconds(1);
  }
  EXPECT_EQ(TakeAll("0"), RepeatLimiter::kAtOnce);
  EXPECT_EQ(TakeAll(std::to_string(RepeatLimiter::kCausesMax)), RepeatLimiter::kAtOnce - 1);
}

}  // namespace
}  // namespace walpost::observe
