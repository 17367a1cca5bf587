#include "base/lsn.h"

#include <gtest/gtest.h>

namespace walpost::base {
namespace {

// Failure 59.
TEST(LsnTest, PrintsAsPostgresDoes) {
  EXPECT_EQ(Lsn(0x16B374D848).ToString(), "16/B374D848");
  EXPECT_EQ(Lsn().ToString(), "0/0");
  EXPECT_EQ(Lsn(~std::uint64_t{0}).ToString(), "FFFFFFFF/FFFFFFFF");
}

TEST(LsnTest, ParsesWhatItPrints) {
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x16B374D848}, ~std::uint64_t{0}}) {
    EXPECT_EQ(Lsn::Parse(Lsn(value).ToString()).value(), Lsn(value));
  }
  EXPECT_EQ(Lsn::Parse("16/b374d848").value(), Lsn(0x16B374D848));
}

TEST(LsnTest, OtherTextIsInvalid) {
  for (const char* text : {"", "/", "1/", "/1", "1", "1/2/3", "123456789/0", "0/123456789", "x/1",
                           "-1/0", " 1/0", "1/0 "}) {
    EXPECT_EQ(Lsn::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// Failure 59.
TEST(LsnTest, OrdersByPositionNotByText) {
  EXPECT_LT(Lsn::Parse("9/0").value(), Lsn::Parse("10/0").value());
  EXPECT_FALSE(Lsn().valid());
}

TEST(FullXidTest, TransactionOfTheSameTimeIsTheNearestWithItsLowerHalf) {
  constexpr FullXid kNow{(std::uint64_t{7} << 32U) + 3};
  EXPECT_EQ(kNow.OfTheTimeOf(Xid{3}), kNow);
  EXPECT_EQ(kNow.OfTheTimeOf(Xid{4}).value, kNow.value + 1);
  EXPECT_EQ(kNow.OfTheTimeOf(Xid{0xFFFF'FFFF}).value, kNow.value - 4);
  EXPECT_EQ(FullXid{0xFFFF'FFFF}.OfTheTimeOf(Xid{3}).value, 0x1'0000'0003U);
}

}  // namespace
}  // namespace walpost::base
