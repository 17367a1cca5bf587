#include "base/figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

// Whatever came before it.
TEST(DelayHistogramTest, EachDelayIsInItsOwnBucketAfterAnyOther) {
  std::vector<double> delays = {0, -1, 0.0005, 1e9};
  for (const double bound : DelayHistogram::kUpperBoundsSeconds) {
    delays.push_back(bound);
    delays.push_back(std::nextafter(bound, 1e9));
  }
  for (const double before : delays) {
    for (const double delay : delays) {
      DelayHistogram alone;
      alone.Add(delay);
      DelayHistogram both;
      both.Add(before);
      const auto counts = both.counts;
      both.Add(delay);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        ASSERT_EQ(both.counts[i] - counts[i], alone.counts[i]) << before << ", " << delay;
      }
    }
  }
}

}  // namespace
}  // namespace walpost::base
