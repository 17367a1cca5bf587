#include "base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace walpost::base {
namespace {

// At each place of a word, and over its end.
bool IsUtf8Everywhere(const std::string& bytes, bool expected) {
  for (std::size_t before = 0; before <= 8; ++before) {
    for (const std::size_t behind : {0, 1, 8}) {
      if (IsUtf8(std::string(before, 'a') + bytes + std::string(behind, 'b')) != expected) {
        return false;
      }
    }
  }
  return true;
}

std::string Encode(std::uint32_t code) {
  std::string text;
  const auto rest = [&text, code](unsigned shift) {
    text += static_cast<char>(0x80 | (code >> shift & 0x3F));
  };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    rest(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    rest(6);
    rest(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    rest(12);
    rest(6);
    rest(0);
  }
  return text;
}

TEST(Utf8Test, AllCharactersAreTextAndSurrogatesAreNot) {
  for (std::uint32_t code = 0; code < 0x120000; code += code < 0x10000 ? 1 : 61) {
    const bool expected = code < 0xD800 || (code > 0xDFFF && code < 0x110000);
    EXPECT_EQ(IsUtf8(Encode(code)), expected) << code;
    EXPECT_EQ(IsUtf8("1234567" + Encode(code) + "12345678"), expected) << code;
  }
}

TEST(Utf8Test, WhatIsNoCharacterIsFoundAtEachPlace) {
  for (const char* bytes :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2 ", "\xE0\x9F\xBF", "\xE2\x82",
        "\xE2\x82 ", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF0\x9F\x98", "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80", "\xFF", "\xC3\xA4\xA4"}) {
    EXPECT_TRUE(IsUtf8Everywhere(bytes, false)) << bytes;
  }
  for (const char* bytes :
       {"", "\x7F", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8Everywhere(bytes, true)) << bytes;
  }
}

TEST(PlainInJsonTest, ControlCharactersQuotesAndBackslashesAreNotAtAnyPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    const bool expected = byte >= ' ' && byte != '"' && byte != '\\';
    for (std::size_t before = 0; before <= 9; ++before) {
      for (const std::size_t behind : {0, 1, 8}) {
        for (const char beside : {'a', '\x7F', '\xFF', ' ', '!', '#', '[', ']'}) {
          std::string text(before, beside);
          text += static_cast<char>(byte);
          text.append(behind, beside);
          ASSERT_EQ(IsPlainInJson(text), expected) << byte << " behind " << before;
        }
      }
    }
  }
  EXPECT_TRUE(IsPlainInJson(""));
}

TEST(WriteHexTest, EachByteIsTwoDigits) {
  char out[2] = {};
  for (unsigned byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(WriteHex(static_cast<std::uint8_t>(byte), out), out + 2);
    EXPECT_EQ(std::stoul(std::string(out, 2), nullptr, 16), byte);
  }
  WriteHex(0xAF, out);
  EXPECT_EQ(std::string(out, 2), "af");
}

TEST(TextTest, CaseIsThatOfAsciiAlone) {
  EXPECT_TRUE(EqualsIgnoringCase("Content-Type", "cONTENT-tYPE"));
  EXPECT_TRUE(EqualsIgnoringCase("", ""));
  EXPECT_FALSE(EqualsIgnoringCase("id", "idx"));
  EXPECT_FALSE(EqualsIgnoringCase("idx", "id"));
  EXPECT_FALSE(EqualsIgnoringCase("@[`{", "`{@[")) << "next to the letters";
  EXPECT_FALSE(EqualsIgnoringCase("\xc3\x84", "\xc3\xa4")) << "an umlaut";
  EXPECT_TRUE(StartsWithIgnoringCase("WALPOST-x", "walpost-"));
  EXPECT_FALSE(StartsWithIgnoringCase("walpost", "walpost-"));
}

}  // namespace
}  // namespace walpost::base
