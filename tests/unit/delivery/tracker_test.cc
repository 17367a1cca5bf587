#include "delivery/tracker.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace walpost::delivery {
namespace {

using base::Lsn;

Sequence AddEvent(Tracker* tracker, std::uint32_t ordinal = 0) {
  envelope::Record record;
  record.block = tracker->arena()->Allocate(100);
  record.value = std::string_view(record.block.data, 100);
  return tracker->Add(record, ordinal, base::WallTime());
}

TEST(TrackerTest, DeliveredTransactionConfirmsItsEndNotItsCommit) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  const Sequence event = AddEvent(&tracker);
  tracker.CommitTransaction(Lsn(120));
  EXPECT_EQ(tracker.safe_lsn(), Lsn());
  tracker.Settle(event);
  EXPECT_EQ(tracker.safe_lsn(), Lsn(120));
}

TEST(TrackerTest, DeliveryBeforeTheCommitArrivedConfirmsNothing) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  tracker.Settle(AddEvent(&tracker));
  EXPECT_EQ(tracker.safe_lsn(), Lsn());
  tracker.CommitTransaction(Lsn(120));
  EXPECT_EQ(tracker.safe_lsn(), Lsn(120));
}

TEST(TrackerTest, LaterTransactionWaitsForTheEarlierOne) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  const Sequence first = AddEvent(&tracker);
  tracker.CommitTransaction(Lsn(120));
  tracker.BeginTransaction(Lsn(200));
  const Sequence second = AddEvent(&tracker);
  tracker.CommitTransaction(Lsn(220));
  tracker.Settle(second);
  EXPECT_EQ(tracker.safe_lsn(), Lsn());
  EXPECT_EQ(tracker.oldest_unsettled(), first);
  tracker.Settle(first);
  EXPECT_EQ(tracker.safe_lsn(), Lsn(220));
  EXPECT_TRUE(tracker.empty());
}

// Failure 44.
TEST(TrackerTest, EmptyTransactionDoesNotPassAnUndeliveredOne) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  const Sequence event = AddEvent(&tracker);
  tracker.CommitTransaction(Lsn(120));
  tracker.BeginTransaction(Lsn(200));
  tracker.CommitTransaction(Lsn(220));
  EXPECT_EQ(tracker.safe_lsn(), Lsn());
  tracker.Settle(event);
  EXPECT_EQ(tracker.safe_lsn(), Lsn(220));
}

TEST(TrackerTest, KeepaliveWithNothingInFlightIsSafeAtOnce) {
  Tracker tracker;
  tracker.ObservePosition(Lsn(500));
  EXPECT_EQ(tracker.safe_lsn(), Lsn(500));
  tracker.ObservePosition(Lsn(400));
  EXPECT_EQ(tracker.safe_lsn(), Lsn(500));
}

TEST(TrackerTest, KeepaliveBehindAnUndeliveredEventWaits) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  const Sequence event = AddEvent(&tracker);
  tracker.CommitTransaction(Lsn(120));
  tracker.ObservePosition(Lsn(500));
  EXPECT_EQ(tracker.safe_lsn(), Lsn());
  tracker.Settle(event);
  EXPECT_EQ(tracker.safe_lsn(), Lsn(500));
}

TEST(TrackerTest, KeepaliveInsideATransactionCountsForWhatCameBeforeIt) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(600));
  const Sequence event = AddEvent(&tracker);
  tracker.ObservePosition(Lsn(500));
  EXPECT_EQ(tracker.safe_lsn(), Lsn(500));
  // Even a position beyond the open transaction never passes its commit.
  tracker.ObservePosition(Lsn(700));
  EXPECT_EQ(tracker.safe_lsn(), Lsn(600));
  tracker.CommitTransaction(Lsn(620));
  tracker.Settle(event);
  EXPECT_EQ(tracker.safe_lsn(), Lsn(620));
}

TEST(TrackerTest, TransactionCutByAReconnectIsNotConfirmedByItsFirstHalf) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  tracker.Settle(AddEvent(&tracker, 0));
  tracker.LeaveTransaction();
  tracker.ObservePosition(Lsn(90));
  EXPECT_EQ(tracker.safe_lsn(), Lsn(90));
  tracker.BeginTransaction(Lsn(100));
  const Sequence rest = AddEvent(&tracker, 1);
  tracker.CommitTransaction(Lsn(120));
  EXPECT_EQ(tracker.safe_lsn(), Lsn(90));
  tracker.Settle(rest);
  EXPECT_EQ(tracker.safe_lsn(), Lsn(120));
}

TEST(TrackerTest, BytesInFlightFollowAddSettleAndDiscard) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  const Sequence first = AddEvent(&tracker);
  AddEvent(&tracker);
  EXPECT_EQ(tracker.in_flight_bytes(), 2 * (768 + 100));
  tracker.Settle(first);
  EXPECT_EQ(tracker.in_flight_bytes(), 768 + 100);
  EXPECT_EQ(tracker.DiscardAll(), 1U);
  EXPECT_EQ(tracker.in_flight_bytes(), 0U);
  EXPECT_TRUE(tracker.empty());
}

TEST(TrackerTest, DiscardKeepsWhatWasSafeAndForgetsWhatWasNot) {
  Tracker tracker;
  tracker.ObservePosition(Lsn(50));
  tracker.BeginTransaction(Lsn(100));
  const Sequence before = AddEvent(&tracker);
  tracker.CommitTransaction(Lsn(120));
  tracker.DiscardAll();
  EXPECT_EQ(tracker.safe_lsn(), Lsn(50));
  EXPECT_EQ(tracker.next_sequence(), before + 1);
  tracker.ForgetPositions();
  EXPECT_EQ(tracker.safe_lsn(), Lsn());
}

using TrackerDeathTest = testing::Test;

TEST(TrackerDeathTest, SecondReportForOneEventIsFatal) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  const Sequence first = AddEvent(&tracker);
  const Sequence second = AddEvent(&tracker);
  tracker.Settle(second);
  EXPECT_DEATH(tracker.Settle(second), "settled");
  tracker.Settle(first);
  EXPECT_DEATH(tracker.Settle(first), "first_sequence_");
}

TEST(TrackerDeathTest, PositionPastAnUndeliveredEventIsFatal) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(1'000));
  const Sequence first = AddEvent(&tracker);
  tracker.CommitTransaction(Lsn(1'100));
  tracker.BeginTransaction(Lsn(500));  // no server may do this; the pipeline rejects it before
  AddEvent(&tracker);
  EXPECT_DEATH(tracker.Settle(first), "would confirm past an undelivered event");
}

// Else one event that waits for ever holds the memory of a million that were delivered.
TEST(TrackerTest, WhatIsSettledBehindAnUnsettledEventIsRetained) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  const Sequence stuck = AddEvent(&tracker);
  const std::size_t alone = tracker.retained_bytes();
  EXPECT_EQ(alone, tracker.in_flight_bytes());
  for (int i = 0; i < 1'000; ++i) {
    tracker.Settle(AddEvent(&tracker));
  }
  EXPECT_EQ(tracker.settled_behind(), 1'000U);
  EXPECT_EQ(tracker.in_flight_bytes(), alone);
  EXPECT_EQ(tracker.retained_bytes(), alone + 1'000 * Tracker::kSettledBytes);
  tracker.Settle(stuck);
  EXPECT_EQ(tracker.retained_bytes(), 0U);
}

// A chunk of memory stays whole for one record in it.
TEST(TrackerTest, MemoryThatAFewRecordsKeepIsRetained) {
  Tracker tracker;
  tracker.BeginTransaction(Lsn(100));
  std::vector<Sequence> stuck;
  std::vector<Sequence> others;
  for (int i = 0; i < 64; ++i) {
    stuck.push_back(AddEvent(&tracker));
    envelope::Record large;
    large.block = tracker.arena()->Allocate(base::ChunkArena::kChunkBytes - 200);
    others.push_back(tracker.Add(large, 0, base::WallTime()));
  }
  for (const Sequence each : others) {
    tracker.Settle(each);
  }
  const std::size_t counted = tracker.in_flight_bytes() + 64 * Tracker::kSettledBytes;
  EXPECT_GT(tracker.retained_bytes(), counted + 58 * base::ChunkArena::kChunkBytes);
  for (const Sequence each : stuck) {
    tracker.Settle(each);
  }
  EXPECT_EQ(tracker.retained_bytes(), 0U);
}

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
  gate.OnSent(kStart);
  gate.OnMadeAnew();
  gate.OnAcknowledged(kStart, 1);
  EXPECT_FALSE(gate.MaySend()) << "the old topic may have answered";
  gate.OnAcknowledged(kStart, 2);
  EXPECT_TRUE(gate.MaySend());
  gate.OnSent(kStart);
  EXPECT_FALSE(gate.MaySend());
  gate.OnAcknowledged(kStart, 0);
  gate.OnSent(kStart);
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
