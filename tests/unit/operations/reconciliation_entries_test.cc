#include "operations/reconcile/reconciliation_entries.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
    EXPECT_EQ(event.Add(RecordAt(0, key, key), true), key < Records::kKindsMax);
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

Entry RowAt(std::uint64_t place) {
  Entry row;
  row.destination = {place, 0};
  return row;
}

Entry DeadLetterAt(std::uint64_t place, std::uint64_t seq, std::uint32_t position,
                   DeadLetterFate fate) {
  Entry dead_letter;
  dead_letter.kind = Kind::kDeadLetter;
  dead_letter.destination = {place, 0};
  dead_letter.number = seq;
  dead_letter.position.ordinal = position;
  dead_letter.fate = fate;
  return dead_letter;
}

TEST(OfOneTextTest, DeadLetterCountsForTheRowOfItsKeyAndLeavesNoDoubtAboutAnother) {
  OfOneText text;
  text.ids[{}].rows = {RowAt(1), RowAt(2)};
  text.AddDeadLetter(DeadLetterAt(2, 7, 1, DeadLetterFate::kDeadLettered));
  text.AddDeadLetter(DeadLetterAt(2, 7, 1, DeadLetterFate::kDiscarded));  // read again, later
  text.FindFates();
  const std::vector<Entry>& rows = text.ids[{}].rows;
  EXPECT_EQ(rows[0].fate, DeadLetterFate::kNone);
  EXPECT_FALSE(rows[0].unproven);
  EXPECT_EQ(rows[1].fate, DeadLetterFate::kDiscarded);
}

TEST(OfOneTextTest, TwoRowsOfOneKeyNeedADeadLetterEach) {
  OfOneText text;
  text.ids[{}].rows = {RowAt(1), RowAt(1)};
  text.AddDeadLetter(DeadLetterAt(1, 7, 1, DeadLetterFate::kDeadLettered));
  text.FindFates();
  for (const Entry& row : text.ids[{}].rows) {
    EXPECT_EQ(row.fate, DeadLetterFate::kNone);
    EXPECT_TRUE(row.unproven);
  }
  text.AddDeadLetter(DeadLetterAt(1, 8, 2, DeadLetterFate::kDeadLettered));
  text.FindFates();
  for (const Entry& row : text.ids[{}].rows) {
    EXPECT_EQ(row.fate, DeadLetterFate::kDeadLettered);
  }
}

TEST(OfOneTextTest, DeadLetterOfNoRowLeavesDoubtAboutThoseOfItsTableThatAreNowhere) {
  OfOneText text;
  Entry there = RowAt(3);
  there.in_topic = true;
  Entry elsewhere = RowAt(1);
  elsewhere.source = 1;
  text.ids[{}].rows = {RowAt(1), there, elsewhere};
  text.AddDeadLetter(DeadLetterAt(2, 7, 1, DeadLetterFate::kDeadLettered));
  text.FindFates();
  const std::vector<Entry>& rows = text.ids[{}].rows;
  EXPECT_TRUE(rows[0].unproven);
  EXPECT_FALSE(rows[1].unproven);
  EXPECT_FALSE(rows[2].unproven);
}

TEST(OfOneTextTest, DeadLettersAreBounded) {
  OfOneText text;
  text.ids[{}].rows = {RowAt(1)};
  for (std::uint32_t n = 0; n <= Records::kKindsMax; ++n) {
    text.AddDeadLetter(DeadLetterAt(1, n, n, DeadLetterFate::kDeadLettered));
  }
  text.FindFates();
  EXPECT_EQ(text.positions, Records::kKindsMax);
  EXPECT_TRUE(text.ids[{}].rows[0].unproven);
}

TEST(OfOneTextTest, RowsAreBoundedAndThenAllOfThemAreUnknown) {
  OfOneText text;
  for (std::size_t n = 0; n < Records::kKindsMax; ++n) {
    Entry row = RowAt(1);
    row.whole_id = {n % 3, 0};
    EXPECT_TRUE(text.AddRow(row));
  }
  text.ids[{}].rows[0].in_topic = true;
  EXPECT_FALSE(text.AddRow(RowAt(1)));
  text.AddDeadLetter(DeadLetterAt(1, 1, 1, DeadLetterFate::kDeadLettered));
  text.FindFates();
  std::size_t unknown = 0;
  for (const auto& [whole, id] : text.ids) {
    for (const Entry& row : id.rows) {
      unknown += !row.in_topic && row.unproven && row.fate == DeadLetterFate::kNone ? 1 : 0;
    }
  }
  EXPECT_EQ(unknown, Records::kKindsMax);
}

// A writer of the topic chooses them.
TEST(OfOneTextTest, LongIdsThatBeginAlikeAreBoundedAndThoseOfRowsAreThere) {
  OfOneText text;
  Entry row = RowAt(1);
  row.whole_id = {7, 7};
  text.AddRow(row);
  for (std::uint64_t n = 0; n < 2 * Records::kKindsMax; ++n) {
    text.IdOf({n, 1});
  }
  EXPECT_EQ(text.ids.size(), Records::kKindsMax);
  EXPECT_EQ(text.IdOf({1, 2}), nullptr);
  ASSERT_NE(text.IdOf({7, 7}), nullptr);
  EXPECT_EQ(text.IdOf({7, 7})->rows.size(), 1U);
}

TEST(DestinationOfTest, IsOfTopicAndKeyAndNoKeyIsNotTheEmptyOne) {
  EXPECT_EQ(DestinationOf("t", "k"), DestinationOf("t", "k"));
  EXPECT_NE(DestinationOf("t", "k"), DestinationOf("u", "k"));
  EXPECT_NE(DestinationOf("t", "k"), DestinationOf("t", "l"));
  EXPECT_NE(DestinationOf("t", ""), DestinationOf("t", std::nullopt));
}

constexpr std::int64_t kHourMs = 3'600'000;
constexpr std::int64_t kDayMs = 24 * kHourMs;

ClockComparison Compare(const std::vector<std::int64_t>& ahead_ms) {
  ClockComparison clocks;
  for (const std::int64_t each : ahead_ms) {
    clocks.Add(/*row_ms=*/kDayMs + each, /*record_ms=*/kDayMs, std::to_string(each));
  }
  return clocks;
}

TEST(ClockComparisonTest, RowThatIsFurthestAheadCounts) {
  EXPECT_EQ(Compare({0, -kHourMs, -1}).ahead_ms(), 0);
  EXPECT_EQ(Compare({0, -kHourMs, -1}).id(), "");
  const ClockComparison clocks = Compare({-kHourMs, 7, kHourMs, 8});
  EXPECT_EQ(clocks.ahead_ms(), kHourMs);
  EXPECT_EQ(clocks.id(), std::to_string(kHourMs));
}

TEST(ClockComparisonTest, WhereNothingShowsItClocksMayDiffer) {
  EXPECT_EQ(Compare({}).ahead_ms(), std::nullopt);
  EXPECT_EQ(Compare({}).allowed_ms(), ClockComparison::kUnknownMs);
  EXPECT_EQ(Compare({ClockComparison::kMostMs + 1}).ahead_ms(), std::nullopt);
  EXPECT_EQ(Compare({-kDayMs}).ahead_ms(), std::nullopt) << "no time at all";
  EXPECT_EQ(Compare({-kHourMs - 1}).ahead_ms(), std::nullopt) << "it came late";
  EXPECT_EQ(Compare({ClockComparison::kMostMs}).ahead_ms(), ClockComparison::kMostMs);
}

}  // namespace
}  // namespace walpost::operations::entries
