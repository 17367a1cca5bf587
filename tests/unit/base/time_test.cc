#include "base/time.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace walpost::base {
namespace {

using std::chrono::milliseconds;

TEST(BackoffTest, DelaysStayBelowTheDoublingCeilingAndUseItsWholeRange) {
  const BackoffOptions options{milliseconds(100), milliseconds(1'000), milliseconds(10)};
  milliseconds longest(0);
  milliseconds shortest(10'000);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Backoff backoff(options, seed);
    for (const int ceiling : {100, 200, 400, 800, 1'000, 1'000}) {
      const milliseconds delay = backoff.Next();
      EXPECT_GE(delay, milliseconds(10));
      EXPECT_LE(delay, milliseconds(ceiling));
      longest = std::max(longest, delay);
      shortest = std::min(shortest, delay);
    }
  }
  EXPECT_GT(longest, milliseconds(950));
  EXPECT_LT(shortest, milliseconds(30));
}

TEST(BackoffTest, SameSeedGivesTheSameDelays) {
  Backoff one(BackoffOptions(), 7);
  Backoff two(BackoffOptions(), 7);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(one.Next(), two.Next());
  }
}

TEST(BackoffTest, LowerBoundIsKeptAlsoAboveTheCeiling) {
  Backoff backoff(BackoffOptions(), 1);
  EXPECT_EQ(backoff.Next(milliseconds(5'000)), milliseconds(5'000));
}

TEST(BackoffTest, ManyAttemptsDoNotOverflowAndResetStartsOver) {
  Backoff backoff(BackoffOptions(), 1);
  for (int i = 0; i < 1'000; ++i) {
    EXPECT_LE(backoff.Next(), milliseconds(30'000));
  }
  EXPECT_EQ(backoff.attempts(), 1'000);
  backoff.Reset();
  EXPECT_LE(backoff.Next(), milliseconds(100));
}

}  // namespace
}  // namespace walpost::base
