// Pairs of texts that one hash of 64 bits takes for the same.

#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <string_view>

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

TEST(LoopbackTest, NamesAndAddressesOfThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
}

TEST(LoopbackTest, AnyOtherNameMayLeadAnywhere) {
  for (const char* host :
       {"", "db", "127.0.0.1.evil.example", "127.evil.example", "localhost.evil.example",
        "10.127.0.1", "128.0.0.1", "0.0.0.0", "::", "fe80::1", "12"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(SecretTest, NameSaysWhetherAValueIsShown) {
  for (const char* name :
       {"sasl.password", "ssl.key.pem", "SASL.OAuthBearer.Client.Secret", "sasl.oauthbearer.config",
        "sasl.kerberos.kinit.cmd", "authorization", "X-Api-Key", "cookie", "token", "passphrase",
        "aws_credentials", "sasl.jaas.config"}) {
    EXPECT_TRUE(MayHoldSecret(name)) << name;
  }
  // Whoever chooses the name of a header may choose one that ends so.
  EXPECT_TRUE(MayHoldSecret("x-auth.file"));
  EXPECT_FALSE(PropertyMayHoldSecret("ssl.key.location"));
  EXPECT_TRUE(PropertyMayHoldSecret("ssl.key.password"));
  for (const char* name : {"bootstrap.servers", "linger.ms", "acks", "sasl.username", "env",
                           "socket.keepalive.enable", "compression.type"}) {
    EXPECT_FALSE(MayHoldSecret(name)) << name;
  }
}

TEST(SecretTest, PiecesOfASecretAreHidden) {
  EXPECT_EQ(HideRuns("bad: 'hunter2hunter2'", {"hunter2hunter2"}), "bad: '***'");
  EXPECT_EQ(HideRuns("bad: hunter2hu", {"hunter2hunter2"}), "bad: ***") << "cut";
  EXPECT_EQ(HideRuns("12345678 and 1234567", {"x12345678x"}), "*** and 1234567");
  EXPECT_EQ(HideRuns("aaaaaaaaaaaa", {"aaaaaaaa"}), "***");
  EXPECT_EQ(HideRuns("", {"aaaaaaaa"}), "");
  EXPECT_EQ(HideRuns("short", {"short"}), "short");
  EXPECT_EQ(HideRuns("hunter2hunter2", {}), "hunter2hunter2");
}

// As a bundle of certificates is. Compared byte for byte it would take minutes.
TEST(SecretTest, SecretAndTextOfAMegabyteAreCompared) {
  std::string secret;
  for (int line = 0; secret.size() < std::size_t{1} << 20U; ++line) {
    secret += std::to_string(line) + " of a bundle\n";
  }
  EXPECT_EQ(HideRuns(secret + "and more", {secret, secret.substr(1)}), "***and more");
}

TEST(SecretTest, SecretThatIsAPartOfAnotherLeavesNothingOfIt) {
  const std::string part = "walpost-prod";
  const std::string whole = "walpost-prod-Tail";
  for (const auto& secrets :
       {std::vector<std::string>{part, whole}, std::vector<std::string>{whole, part}}) {
    EXPECT_EQ(HideRuns("x walpost-prod-Tail y", secrets), "x *** y");
    EXPECT_EQ(HideRuns("x walpost-prod y", secrets), "x *** y");
  }
  EXPECT_EQ(HideRuns("abcdefghijk", {"abcdefgh", "defghijk"}), "***") << "they overlap";
}

// Abseil (20220623) multiplies each 8 bytes, after an XOR with this constant of it, with the next
// 8: what comes here makes that 0, and the next 8 bytes, one of its halves, do not count. So such
// texts collide whatever the process's seed is, as others do by chance once in 2^64.
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
