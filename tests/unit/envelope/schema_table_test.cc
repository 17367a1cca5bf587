#include "envelope/schema_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace walpost::envelope {
namespace {

using Ref = SchemaTable::Ref;
using State = SchemaTable::State;

SchemaNeed Need(const std::string& subject) {
  return {Framing::kPayload, SchemaType::kJson, subject, "", 0};
}

class SchemaTableRoomTest : public ::testing::Test {
 protected:
  // New ones until there are too many; the last.
  Ref Crowd(bool known) {
    Ref ref = 0;
    while (!table_.crowded()) {
      ref = table_.RefOf(Need("invented-" + std::to_string(invented_++)));
      if (known) {
        table_.Use(ref);
        table_.Learn(ref, "frame", true);
      }
    }
    return ref;
  }

  SchemaTable table_;
  int invented_ = 0;
};

TEST_F(SchemaTableRoomTest, ForgetsWhatIsNotKnownAndNotInUse) {
  const Ref known = table_.RefOf(Need("known"));
  table_.Learn(known, "frame", true);
  const Ref waits = table_.RefOf(Need("waits"));
  table_.Use(waits);
  Crowd(false);
  const std::uint64_t epoch = table_.epoch();
  table_.ForgetUnused({0, waits});
  EXPECT_NE(table_.epoch(), epoch);
  EXPECT_EQ(table_.wanted(), 1U);
  EXPECT_EQ(table_.RefOf(Need("known")), known);
  EXPECT_EQ(table_.entry(known).frame, "frame");
  EXPECT_EQ(table_.RefOf(Need("waits")), waits);
  EXPECT_LT(table_.bytes(), 2'000U);
  const Ref highest = table_.size();
  EXPECT_LE(table_.RefOf(Need("new")), highest) << "a place that is free";
  EXPECT_EQ(table_.wanted(), 1U) << "not before it is used";
}

TEST_F(SchemaTableRoomTest, KeepsOfWhatIsKnownTheHalfThatWasUsedLast) {
  const Ref first = table_.RefOf(Need("first"));
  table_.Learn(first, "frame", true);
  const Ref last = Crowd(true);
  table_.Use(first);
  table_.ForgetUnused({});
  EXPECT_LE(table_.bytes(), SchemaTable::kBytesMax / 2);
  EXPECT_GT(table_.bytes(), SchemaTable::kBytesMax / 3);
  EXPECT_EQ(table_.entry(first).state, State::kKnown);
  EXPECT_EQ(table_.entry(last).state, State::kKnown);
  EXPECT_EQ(table_.entry(first + 1).state, State::kUnknown);
  EXPECT_EQ(table_.wanted(), 0U);
}

TEST_F(SchemaTableRoomTest, KeepsWhatIsInUseHoweverLongAgoItWasUsed) {
  const Ref first = table_.RefOf(Need("first"));
  table_.Learn(first, "frame", true);
  Crowd(true);
  table_.ForgetUnused({first});
  EXPECT_EQ(table_.entry(first).state, State::kKnown);
  EXPECT_EQ(table_.RefOf(Need("first")), first);
}

// Else it would be looked through at each step.
TEST_F(SchemaTableRoomTest, IsCrowdedAgainOnlyWhenAsMuchWasAddedAsIsInUse) {
  Crowd(false);
  std::vector<Ref> in_use;
  for (Ref ref = 1; ref <= table_.size(); ++ref) {
    in_use.push_back(ref);
  }
  table_.ForgetUnused(in_use);
  EXPECT_FALSE(table_.crowded());
  Crowd(false);
  EXPECT_GT(table_.bytes(), 2 * SchemaTable::kBytesMax);
}

}  // namespace
}  // namespace walpost::envelope
