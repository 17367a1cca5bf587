#include "base/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

#include "base/text.h"

namespace walpost::base {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(PrintableTest, TextStaysAsItIs) {
  for (const char* text :
       {"", "order-7", "a \"b\" \\ c", "Ärger", "日本語", "\U0001F600", "a\u0301"}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_EQ(PrintableLines(text), text);
  }
}

TEST(PrintableTest, WhatATerminalObeysIsEscaped) {
  EXPECT_EQ(Printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Printable(std::string("\0\t\r\n\x7f", 5)), "\\x00\\x09\\x0d\\x0a\\x7f");
  EXPECT_EQ(Printable("\u0080\u009b\u009f\u00a0"), "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f\u00a0");
  EXPECT_EQ(Printable("\u202ea\u2066\u2028"), "\\xe2\\x80\\xaea\\xe2\\x81\\xa6\\xe2\\x80\\xa8");
}

TEST(PrintableTest, CharactersBesideThoseThatAreObeyedStay) {
  for (const std::string text : {"\u0080", "\u009f", "\u061c", "\u200e", "\u200f", "\u2028",
                                 "\u202e", "\u2066", "\u2069", "\x1f", "\x7f"}) {
    EXPECT_THAT(Printable(text), StartsWith("\\x")) << Printable(text);
  }
  for (const std::string text : {"\u00a0", "\u061b", "\u061d", "\u200d", "\u2010", "\u2027",
                                 "\u202f", "\u2065", "\u206a", " ", "~"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, WhatIsNoUtf8IsEscaped) {
  EXPECT_EQ(Printable("\x9b"
                      "1m"),
            "\\x9b1m");
  EXPECT_EQ(Printable("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(Printable("\xc3(\xe2\x82"), "\\xc3(\\xe2\\x82");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
}

TEST(PrintableTest, CharactersEndWhereTheTextEndsAndAfterFourBytes) {
  EXPECT_EQ(Printable(std::string_view("\u00e9\u0301").substr(0, 1)), "\\xc3");
  EXPECT_EQ(Printable("\U0001F600\x80"), "\U0001F600\\x80");
}

TEST(PrintableTest, LinesStayLines) {
  EXPECT_EQ(PrintableLines("a\n\tb\r\n\x1b"), "a\n\\x09b\\x0d\n\\x1b");
}

TEST(PrintableTest, IsCutWhereThatIsAsked) {
  EXPECT_EQ(Printable("abcdef", 3), "abc...");
  EXPECT_EQ(Printable("abc", 3), "abc");
  EXPECT_EQ(Printable("ab\u2028", 13), "ab...") << "an escape of several bytes would exceed it";
  EXPECT_EQ(Printable("ab\u2028", 14), "ab\\xe2\\x80\\xa8");
}

TEST(PrintableTest, AnyBytesBecomeUtf8WithoutControls) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes(random() % 12, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random());
    }
    const std::string shown = Printable(bytes);
    ASSERT_TRUE(IsUtf8(shown));
    ASSERT_EQ(Printable(shown), shown);
  }
}

TEST(CutTest, WhatFitsStays) {
  EXPECT_EQ(Cut("abc", 3), "abc");
  EXPECT_EQ(Cut(std::string(kShownBytesMax, 'x')), std::string(kShownBytesMax, 'x'));
}

TEST(CutTest, TheMiddleIsLeftOut) {
  const std::string shown = Cut("event " + std::string(1'000'000, 'x') + ": has no topic", 100);
  EXPECT_THAT(shown, StartsWith("event xxx"));
  EXPECT_THAT(shown, EndsWith("xxx: has no topic"));
  EXPECT_THAT(shown, HasSubstr("(999920 bytes left out)"));
  EXPECT_LT(shown.size(), 150U);
}

TEST(CutTest, NoCharacterIsCut) {
  for (std::size_t max = 1; max < 20; ++max) {
    EXPECT_TRUE(IsUtf8(Cut("\U0001F600\U0001F600\U0001F600\U0001F600\U0001F600\U0001F600", max)));
  }
  EXPECT_LT(Cut(std::string(1'000, '\x80'), 100).size(), 150U);
}

}  // namespace
}  // namespace walpost::base
