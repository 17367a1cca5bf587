#include "base/delay_histogram.h"

#include <gtest/gtest.h>

namespace walpost::base {
namespace {

TEST(DelayHistogramTest, UpperBoundsAreInclusive) {
  DelayHistogram histogram;
  histogram.Add(0.001);
  histogram.Add(0.0011);
  histogram.Add(1'000);
  EXPECT_EQ(histogram.counts[0], 1U);
  EXPECT_EQ(histogram.counts[1], 1U);
  EXPECT_EQ(histogram.counts.back(), 1U);
  EXPECT_EQ(histogram.Total(), 3U);
}

// Failure 29.
TEST(DelayHistogramTest, NegativeDelayCountsAsZero) {
  DelayHistogram histogram;
  histogram.Add(-5);
  EXPECT_EQ(histogram.counts[0], 1U);
  EXPECT_EQ(histogram.sum_seconds, 0);
}

TEST(DelayHistogramTest, QuantileIsTheUpperBoundOfItsBucket) {
  DelayHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  for (int i = 0; i < 99; ++i) {
    histogram.Add(0.004);
  }
  histogram.Add(7);
  EXPECT_EQ(histogram.Quantile(0.5), 0.005);
  EXPECT_EQ(histogram.Quantile(0.99), 0.005);
  EXPECT_EQ(histogram.Quantile(1), 10);
}

}  // namespace
}  // namespace walpost::base
