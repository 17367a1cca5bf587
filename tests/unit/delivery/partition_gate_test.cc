#include "delivery/partition_gate.h"

#include <gtest/gtest.h>

namespace walpost::delivery {
namespace {

using std::chrono::milliseconds;

const base::MonotonicTime kStart{std::chrono::hours(1)};

// A gate whose broker knows the producer, since kStart.
PartitionGate Known() {
  PartitionGate gate;
  gate.OnSent(kStart);
  gate.OnAcknowledged(kStart, 0);
  return gate;
}

TEST(PartitionGateTest, FirstRecordIsSentAlone) {
  PartitionGate gate;
  EXPECT_TRUE(gate.MaySend());
  gate.OnSent(kStart);
  EXPECT_FALSE(gate.MaySend());
  gate.OnAcknowledged(kStart, 0);
  gate.OnSent(kStart);
  EXPECT_TRUE(gate.MaySend()) << "from here on many at a time";
}

TEST(PartitionGateTest, FailedFirstRecordProvesNothing) {
  PartitionGate gate;
  gate.OnSent(kStart);
  gate.OnFailed();
  gate.OnSent(kStart);
  EXPECT_FALSE(gate.MaySend());
}

TEST(PartitionGateTest, RecordAfterAnIdleMinuteIsSentAlone) {
  PartitionGate gate = Known();
  gate.OnSent(kStart + PartitionGate::kKnownFor - milliseconds(1));
  EXPECT_TRUE(gate.MaySend());
  gate = Known();
  gate.OnSent(kStart + PartitionGate::kKnownFor);
  EXPECT_FALSE(gate.MaySend());
}

// Else a partition that is stuck would stop all others after a minute.
TEST(PartitionGateTest, WhatWaitsForLongIsJoinedByOthers) {
  PartitionGate gate = Known();
  gate.OnSent(kStart);
  gate.OnSent(kStart + 10 * PartitionGate::kKnownFor);
  EXPECT_TRUE(gate.MaySend());
}

TEST(PartitionGateTest, NothingFollowsInATopicMadeAnewUntilAnAcknowledgement) {
  PartitionGate gate = Known();
  gate.OnMadeAnew();
  EXPECT_TRUE(gate.MaySend());
  gate.OnSent(kStart);
  EXPECT_FALSE(gate.MaySend());

  gate = Known();
  gate.OnSent(kStart);
  gate.OnMadeAnew();
  EXPECT_FALSE(gate.MaySend());
  gate.OnAcknowledged(kStart, 1);
  EXPECT_TRUE(gate.MaySend());
}

TEST(PartitionGateTest, OffsetThatGoesBackSaysThatTheTopicWasMadeAnew) {
  PartitionGate gate;
  const auto acknowledge = [&gate](std::int64_t offset) {
    gate.OnSent(kStart);
    return gate.OnAcknowledged(kStart, offset);
  };
  EXPECT_FALSE(acknowledge(7));
  EXPECT_FALSE(acknowledge(-1)) << "not known";
  EXPECT_FALSE(acknowledge(8));
  EXPECT_TRUE(acknowledge(8)) << "as little as one record";
  EXPECT_TRUE(acknowledge(0));
  EXPECT_FALSE(acknowledge(1));
}

}  // namespace
}  // namespace walpost::delivery
