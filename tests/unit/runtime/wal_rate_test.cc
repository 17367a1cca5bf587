#include "runtime/wal_rate.h"

#include <gtest/gtest.h>

namespace walpost::runtime {
namespace {

using base::Lsn;
using base::MonotonicTime;
using std::chrono::seconds;

MonotonicTime At(int second) { return MonotonicTime(seconds(second)); }

TEST(WalRateTest, NothingIsReportedBeforeAMinute) {
  WalRate rate;
  EXPECT_FALSE(rate.BytesPerSecond());
  rate.Add(At(0), Lsn(1'000));
  rate.Add(At(59), Lsn(2'000));
  EXPECT_FALSE(rate.BytesPerSecond());
  rate.Add(At(100), Lsn(3'000));
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 20);
}

TEST(WalRateTest, WhatIsOlderThanTheWindowNoLongerCounts) {
  WalRate rate;
  std::uint64_t position = 1'000;
  for (int second = 0; second <= 3'600; ++second) {
    rate.Add(At(second), Lsn(position));
    position += second < 1'700 ? 1'000 : 10;
  }
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 10);
}

TEST(WalRateTest, IdleServerHasTheRateZero) {
  WalRate rate;
  rate.Add(At(0), Lsn(1'000));
  rate.Add(At(300), Lsn(1'000));
  EXPECT_EQ(rate.BytesPerSecond().value(), 0);
}

TEST(WalRateTest, AnotherServerBeginsAnew) {
  WalRate rate;
  rate.Add(At(0), Lsn(1'000'000));
  rate.Add(At(100), Lsn(2'000'000));
  rate.Add(At(110), Lsn(500));
  EXPECT_FALSE(rate.BytesPerSecond());
  rate.Add(At(210), Lsn(1'500));
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 10);
}

TEST(WalRateTest, NoPositionIsNoPoint) {
  WalRate rate;
  rate.Add(At(0), Lsn());
  rate.Add(At(10), Lsn(1'000));
  rate.Add(At(110), Lsn(2'000));
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 10);
}

}  // namespace
}  // namespace walpost::runtime
