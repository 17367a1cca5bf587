// Pairs of texts that one hash of 64 bits takes for the same.
#include "base/wide_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace walpost::base {
namespace {

// Abseil (20220623) multiplies each 8 bytes, after an XOR with this constant of it, with the next 8: what comes
// here makes that 0, and the next 8 bytes, one of its halves, do not count. So such texts collide
// whatever the process's seed is, as others do by chance once in 2^64.
constexpr char kLosesTheNext8[] = "\x44\x73\x70\x03\x2e\x8a\x19\x13";

const std::string kLost[] = {"lost-001", "lost-002"};

std::string Colliding(const std::string& before, const std::string& lost, std::size_t size) {
  std::string text = before + kLosesTheNext8 + lost;
  text.resize(size, 'x');
  return text;
}

TEST(WideHashTest, FirstHalfOfTwoTextsIsTheSameThenTheSecondDiffers) {
  for (const std::size_t size : {32, 100, 1'024, 1'025, 2'048, 5'000}) {
    const std::string one = Colliding("", kLost[0], size);
    const std::string other = Colliding("", kLost[1], size);
    EXPECT_NE(WideHashOf(one).second, WideHashOf(other).second) << size;
    EXPECT_NE(WideHashOf("topic", one).second, WideHashOf("topic", other).second) << size;
    EXPECT_NE(WideHashOf(one, "key").second, WideHashOf(other, "key").second) << size;
  }
}

TEST(WideHashTest, SecondHalfOfTwoTextsIsTheSameThenTheFirstDiffers) {
  for (const std::size_t size : {33, 100, 1'024, 1'025, 2'048, 5'000}) {
    const std::string one = Colliding("-", kLost[0], size);
    const std::string other = Colliding("-", kLost[1], size);
    EXPECT_NE(WideHashOf(one).first, WideHashOf(other).first) << size;
    EXPECT_NE(WideHashOf("topic", one).first, WideHashOf("topic", other).first) << size;
    EXPECT_NE(WideHashOf(one, "key").first, WideHashOf(other, "key").first) << size;
  }
}

// Made for libstdc++'s hash of a text, which has no seed: anybody can make such a pair.
TEST(WideHashTest, StandardHashOfTwoTextsIsTheSameThenTheWideOneDiffers) {
  const std::string one = "parked-1parked-2";
  const std::string other = "PARKED-1\x5f\x3c\x85\xce\x46\xb9\xda\x3f";
  EXPECT_NE(WideHashOf(one).first, WideHashOf(other).first);
  EXPECT_NE(WideHashOf(one).second, WideHashOf(other).second);
  EXPECT_NE(WideHashOf("topic", one), WideHashOf("topic", other));
}

TEST(WideHashTest, SameTextsThenTheSameHash) {
  EXPECT_EQ(WideHashOf("topic", std::string(2'000, 'k')),
            WideHashOf(std::string("topic"), std::string(2'000, 'k')));
}

TEST(WideHashTest, TextsThatAreDividedInAnotherWayThenAnotherHash) {
  std::set<std::uint64_t> first;
  std::set<std::uint64_t> second;
  const std::string text = "topickey";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const WideHash hash = WideHashOf(text.substr(0, cut), text.substr(cut));
    first.insert(hash.first);
    second.insert(hash.second);
  }
  EXPECT_EQ(first.size(), text.size() + 1);
  EXPECT_EQ(second.size(), text.size() + 1);
}

}  // namespace
}  // namespace walpost::base
