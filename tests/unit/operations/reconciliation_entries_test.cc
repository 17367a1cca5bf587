#include "operations/reconcile/reconciliation_entries.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace walpost::operations::entries {
namespace {

Entry RecordAt(std::int32_t partition, std::uint64_t offset, std::uint64_t key = 0) {
  Entry record;
  record.kind = Kind::kRecord;
  record.partition = partition;
  record.number = offset;
  record.has_key = true;
  record.key = {key, 0};
  return record;
}

// Another producer may write millions of them.
TEST(OfOneIdTest, RecordsOfOneKindAreCountedAndTheFirstIsKept) {
  OfOneId event;
  for (std::uint64_t offset : {7U, 5U, 9U}) {
    event.Add(RecordAt(0, offset), /*of_history=*/true);
  }
  event.Add(RecordAt(1, 1), true);
  event.Add(RecordAt(0, 1), /*of_history=*/false);
  ASSERT_EQ(event.records.size(), 3U);
  const Records& three = event.records.at({0, 0, false, true, true, {0, 0}, {}});
  EXPECT_EQ(three.count, 3U);
  EXPECT_EQ(three.first.number, 5U);
  EXPECT_FALSE(event.too_many);
}

TEST(OfOneIdTest, KindsAreBounded) {
  OfOneId event;
  for (std::uint64_t key = 0; key <= Records::kKindsMax; ++key) {
    EXPECT_FALSE(event.too_many);
    event.Add(RecordAt(0, key, key), true);
  }
  EXPECT_TRUE(event.too_many);
  EXPECT_EQ(event.records.size(), Records::kKindsMax);
  event.Add(RecordAt(0, 0, 0), true);
  EXPECT_EQ(event.records.at({0, 0, false, true, true, {0, 0}, {}}).count, 2U);
}

TEST(OfOneIdTest, OfLateOnesTheFirstOfAPartitionIsKept) {
  OfOneId event;
  for (std::uint64_t offset : {7U, 5U, 9U}) {
    event.AddLate(RecordAt(0, offset));
  }
  event.AddLate(RecordAt(1, 8));
  ASSERT_EQ(event.late.size(), 2U);
  EXPECT_EQ(event.late.at({0, 0}), 5U);
  EXPECT_EQ(event.late.at({0, 1}), 8U);
}

}  // namespace
}  // namespace walpost::operations::entries
