#include "envelope/position.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "support/random_seed.h"

namespace walpost::envelope {
namespace {

using base::Lsn;

TEST(PositionTest, TextHasTheDocumentedForm) {
  const Position position{7'311'123'456'789'012'345, 3, Lsn(0x16B374D848), 42};
  EXPECT_EQ(position.ToString(), "6576540c46ef5f79-00000003-00000016b374d848-0000002a");
  EXPECT_EQ(Position().ToString(), "0000000000000000-00000000-0000000000000000-00000000");
  const Position last{~std::uint64_t{0}, ~std::uint32_t{0}, Lsn(~std::uint64_t{0}),
                      ~std::uint32_t{0}};
  EXPECT_EQ(last.ToString(), "ffffffffffffffff-ffffffff-ffffffffffffffff-ffffffff");
}

TEST(PositionTest, FormatWritesExactlyItsSize) {
  std::string text(Position::kTextSize + 2, '#');
  Position{1, 2, Lsn(3), 4}.Format(text.data() + 1);
  EXPECT_EQ(text, "#0000000000000001-00000002-0000000000000003-00000004#");
}

Position RandomPosition(std::mt19937_64* random) {
  // Few values with many digits, so that positions often differ in one part only.
  const auto part = [random] { return ((*random)() % 3) << ((*random)() % 60); };
  return Position{part(), static_cast<std::uint32_t>(part()), Lsn(part()),
                  static_cast<std::uint32_t>(part())};
}

TEST(PositionTest, TextSortsInStreamOrderAndParsesBack) {
  std::mt19937_64 random(testing::RandomSeed());
  for (int i = 0; i < 20'000; ++i) {
    const Position one = RandomPosition(&random);
    const Position other = RandomPosition(&random);
    ASSERT_EQ(one < other, one.ToString() < other.ToString())
        << one.ToString() << " " << other.ToString();
    ASSERT_EQ(Position::Parse(one.ToString()).value(), one);
  }
}

TEST(PositionTest, ClusterThenTimelineThenCommitThenOrdinalDecide) {
  const std::vector<Position> ascending = {{1, 1, Lsn(1), 9},
                                           {1, 1, Lsn(2), 0},
                                           {1, 2, Lsn(1), 0},
                                           {1, 2, Lsn(1), 1},
                                           {2, 1, Lsn(1), 0}};
  EXPECT_TRUE(std::is_sorted(ascending.begin(), ascending.end()));
}

TEST(PositionTest, OtherTextIsInvalid) {
  const std::string good = "6576540c46ef5f79-00000003-00000016b374d848-0000002a";
  ASSERT_TRUE(Position::Parse(good).ok());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char other : {'g', 'A', ' ', '+', '\0', good[i] == '-' ? '0' : '-'}) {
      std::string text = good;
      text[i] = other;
      EXPECT_EQ(Position::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    }
    EXPECT_FALSE(Position::Parse(good.substr(0, i)).ok());
  }
  EXPECT_FALSE(Position::Parse(good + "0").ok());
}

}  // namespace
}  // namespace walpost::envelope
