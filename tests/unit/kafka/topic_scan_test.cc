#include "kafka/topic_scan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace walpost::kafka {
namespace {

constexpr std::int64_t kNone = INT64_MAX;
constexpr std::int64_t kEarlier = INT64_MIN;

// Partition 0 is as it was, of 1 a part was deleted, of 2 all, 3 never had a record, and 4 was read
// from a later one on.
TopicGaps Gaps() {
  TopicGaps gaps;
  gaps.begins_ms = kNone;
  gaps.partitions = {{100, false}, {200, true}, {kNone, true}, {kNone, false}, {kEarlier, true}};
  return gaps;
}

TEST(TopicGapsTest, EachPartitionBeginsByItself) {
  const TopicGaps gaps = Gaps();
  EXPECT_EQ(gaps.BeginsMs(0), 100);
  EXPECT_EQ(gaps.BeginsMs(1), 200);
  EXPECT_EQ(gaps.BeginsMs(2), kNone);
  EXPECT_EQ(gaps.BeginsMs(4), kEarlier);
}

TEST(TopicGapsTest, APartitionThatIsNotKnownMayBeAny) {
  EXPECT_EQ(Gaps().BeginsMs(-1), kNone);
  EXPECT_EQ(TopicGaps().BeginsMs(-1), std::nullopt);
}

// It may have been added after the event went to another one.
TEST(TopicGapsTest, OneThatWasNeverCutBeginsNoLaterThanWhatWasCut) {
  TopicGaps gaps = Gaps();
  EXPECT_EQ(gaps.BeginsMs(3), kNone);
  gaps.begins_ms = 50;
  EXPECT_EQ(gaps.BeginsMs(0), 50);
  EXPECT_EQ(gaps.BeginsMs(3), 50);
  gaps.begins_ms.reset();
  EXPECT_EQ(gaps.BeginsMs(3), std::nullopt);
}

TEST(TopicGapsTest, AnEventIsWhereItAsksForOrItsKeySays) {
  TopicGaps gaps = Gaps();
  EXPECT_EQ(gaps.PartitionOf(3, 7), 3);
  EXPECT_EQ(gaps.PartitionOf(-1, 7), 2);
  EXPECT_EQ(gaps.PartitionOf(-1, std::nullopt), -1);
  EXPECT_EQ(gaps.PartitionOf(5, 7), -1);
  EXPECT_EQ(TopicGaps().PartitionOf(-1, 7), -1);
}

TEST(TopicGapsTest, KeysThatLieElsewhereSayNothing) {
  TopicGaps gaps = Gaps();
  gaps.keys_elsewhere = true;
  EXPECT_EQ(gaps.PartitionOf(-1, 7), -1);
  EXPECT_EQ(gaps.PartitionOf(3, 7), 3);
}

}  // namespace
}  // namespace walpost::kafka
