// JSON expansion where the comparison with Debezium cannot look: limits, and what Debezium leaves
// to chance.
#include "outbox/json_expansion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "outbox/connect_value.h"

namespace walpost::outbox {
namespace {

// "-" when it is to go out as it is.
std::string Expanded(std::string_view text, const JsonExpansion& rules = {}) {
  std::string out = "before:";
  const bool expanded = ExpandJson(text, rules, &out);
  EXPECT_EQ(out.substr(0, 7), "before:");
  EXPECT_TRUE(expanded || out == "before:") << out;
  return expanded ? out.substr(7) : "-";
}

// Names of 16 characters that have the same std::hash. Anybody can make them: that
// hash has no secret, and each of its steps can be undone.
class CollidingNames {
 public:
  std::string Next() {
    while (true) {
      const std::uint64_t first = random_() & kAscii;
      const std::uint64_t state = ((kSeed ^ 16 * kMultiplier) ^ Mixed(first)) * kMultiplier;
      const std::uint64_t second = Unmixed(kWanted ^ state);
      if (IsText(first) && IsText(second)) {
        return Bytes(first) + Bytes(second);
      }
    }
  }

 private:
  static constexpr std::uint64_t kSeed = 0xc70f6907;
  static constexpr std::uint64_t kMultiplier = 0xc6a4a7935bd1e995;
  static constexpr std::uint64_t kInverse = 0x5f7a0ea7e59b19bd;  // their product is 1
  static constexpr std::uint64_t kWanted = 0x0123456789abcdef;
  static constexpr std::uint64_t kAscii = 0x7f7f7f7f7f7f7f7f;

  static std::uint64_t Mixed(std::uint64_t block) {
    block *= kMultiplier;
    return (block ^ block >> 47) * kMultiplier;
  }

  static std::uint64_t Unmixed(std::uint64_t block) {
    block *= kInverse;
    return (block ^ block >> 47) * kInverse;
  }

  static bool IsText(std::uint64_t block) {
    const std::string text = Bytes(block);
    return std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
  }

  static std::string Bytes(std::uint64_t block) {
    return {reinterpret_cast<const char*>(&block), sizeof block};
  }

  std::mt19937_64 random_;  // always the same
};

TEST(JsonExpansionTest, ObjectIsWrittenWithoutBlanks) {
  EXPECT_EQ(Expanded(R"({"a": 1, "b": [true, null], "c": {"d": "e"}})"),
            R"({"a":1,"b":[true,null],"c":{"d":"e"}})");
}

TEST(JsonExpansionTest, WhatIsNoObjectGoesOutAsItIs) {
  for (const char* text :
       {"", " {}", "[]", "[1]", "\"a\"", "1", "null", "{", "{\"a\":}", "plain"}) {
    EXPECT_EQ(Expanded(text), "-") << text;
  }
}

TEST(JsonExpansionTest, NumbersAreJavas) {
  EXPECT_EQ(
      Expanded(
          R"({"a":1.50,"b":1e2,"c":1E-7,"d":-0,"e":-0.0,"f":12345678.5,"g":9007199254740993})"),
      R"({"a":1.5,"b":100.0,"c":1.0E-7,"d":0,"e":-0.0,"f":1.23456785E7,"g":9007199254740993})");
}

TEST(JsonExpansionTest, WholeNumberThatFitsNoTypeIsNotExpanded) {
  EXPECT_EQ(Expanded(R"({"a":9223372036854775807})"), R"({"a":9223372036854775807})");
  EXPECT_EQ(Expanded(R"({"a":9223372036854775808})"), "-");
  EXPECT_EQ(Expanded(R"({"a":-9223372036854775809})"), "-");
  EXPECT_EQ(Expanded(R"({"a":123456789012345678901234567890})"), "-");
  EXPECT_EQ(Expanded(R"({"a":1e999})"), "-");
}

TEST(JsonExpansionTest, NullsAndEmptyArraysAreKeptWhenAskedFor) {
  constexpr char kText[] = R"({"a":null,"b":[],"c":[null]})";
  EXPECT_EQ(Expanded(kText), "-");
  EXPECT_EQ(Expanded(R"({"a":null,"b":[]})"), "{}");
  EXPECT_EQ(Expanded(R"({"a":null,"b":[]})", {true, false}), R"({"a":null})");
  EXPECT_EQ(Expanded(R"({"a":null,"b":[]})", {false, true}), R"({"b":[]})");
  EXPECT_EQ(Expanded(kText, {true, true}), R"({"a":null,"b":[],"c":[null]})");
}

TEST(JsonExpansionTest, ObjectsOfAnArrayGetEachOthersMembersInOrderOfAppearance) {
  EXPECT_EQ(Expanded(R"({"l":[{"a":1},{"b":"x","a":2}]})"),
            R"({"l":[{"a":1,"b":null},{"a":2,"b":"x"}]})");
  EXPECT_EQ(Expanded(R"({"l":[{"n":{"a":1}},{"n":{"b":2}}]})"),
            R"({"l":[{"n":{"a":1,"b":null}},{"n":{"a":null,"b":2}}]})");
}

TEST(JsonExpansionTest, MembersOfTwoTypesAreNotExpanded) {
  EXPECT_EQ(Expanded(R"({"l":[{"a":1},{"a":"x"}]})"), "-");
  EXPECT_EQ(Expanded(R"({"l":[[1],["x"]]})"), "-");
  EXPECT_EQ(Expanded(R"({"l":[1,2.5]})"), "-");
  EXPECT_EQ(Expanded(R"({"l":[1,"x"],"a":1})"), "-") << "whatever follows";
  EXPECT_EQ(Expanded(R"({"":1,"a":1})"), "-") << "a field of Kafka Connect has a name";
}

TEST(JsonExpansionTest, NameThatStandsTwiceHasItsLastValueAtItsFirstPlace) {
  EXPECT_EQ(Expanded(R"({"a":1,"b":2,"a":{"c":3}})"), R"({"a":{"c":3},"b":2})");
  std::string many = "{";
  std::string once = "{";
  for (int i = 0; i < 100; ++i) {
    many += "\"k" + std::to_string(i) + "\":0,";
    once += "\"k" + std::to_string(i) + "\":" + (i == 90 ? "7" : "0") + (i < 99 ? "," : "}");
  }
  EXPECT_EQ(Expanded(many + "\"k90\":7}"), once);
}

TEST(JsonExpansionTest, DeepNestingIsNotExpandedAndDoesNotOverflowTheStack) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) {
      text += "{\"a\":";
    }
    return text + "1" + std::string(static_cast<std::size_t>(depth), '}');
  };
  EXPECT_EQ(Expanded(nested(1000)), nested(1000));
  EXPECT_EQ(Expanded(nested(1001)), "-");
  EXPECT_EQ(Expanded(nested(1'000'000)), "-");
}

// Quadratic work would take minutes.
TEST(JsonExpansionTest, ManyMembersTakeNoQuadraticTime) {
  std::string text = "{\"l\":[{";
  for (int i = 0; i < 100'000; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  }
  text += "}]}";
  EXPECT_EQ(Expanded(text), text);
}

// Where a list becomes a table for look-ups nothing may change.
TEST(JsonExpansionTest, ObjectOfAnySizeIsWrittenAsItIs) {
  std::string members;
  for (int i = 1; i <= 40; ++i) {
    members += (i == 1 ? "\"" : ",\"") + std::to_string(i) + "\":" + std::to_string(i);
    const std::string object = "{" + members + "}";
    EXPECT_EQ(Expanded(object), object);
    const std::string list = "{\"l\":[" + object + "," + object + "]}";
    EXPECT_EQ(Expanded(list), list);
  }
}

// Each element gets the members of all others: a text of n elements would become one of n * n.
TEST(JsonExpansionTest, TextThatWouldGrowBeyondAllMeasureGoesOutAsItIs) {
  const auto list = [](int elements) {
    std::string text = "{\"l\":[";
    for (int i = 0; i < elements; ++i) {
      text += absl::StrFormat("%s{\"member%d\":1}", i == 0 ? "" : ",", i);
    }
    return text + "]}";
  };
  EXPECT_NE(Expanded(list(10)), "-");
  EXPECT_EQ(Expanded(list(100)), "-");
  EXPECT_EQ(Expanded(list(50'000)), "-");
}

TEST(JsonExpansionTest, TextOfTooManyValuesGoesOutAsItIs) {
  std::string text = "{\"l\":[0";
  for (std::size_t i = 3; i < kJsonValuesMax; ++i) {
    text += ",0";
  }
  EXPECT_EQ(Expanded(text + "]}"), text + "]}");
  EXPECT_EQ(Expanded(text + ",0,0]}"), "-");
}

// Each level has a list of a chain as deep as all below it, and all below it: so the members at the
// bottom are merged anew on each level.
std::string NestedLists(int levels, int members) {
  std::string chain = "{}";
  std::string text = "{";
  for (int i = 0; i < members; ++i) {
    text += absl::StrFormat("%s\"%d\":1", i == 0 ? "" : ",", i);
  }
  text += '}';
  for (int level = 0; level < levels; ++level) {
    text = "{\"l\":[" + chain + "," + text + "]}";
    chain = "{\"l\":[" + chain + "]}";
  }
  return text;
}

TEST(JsonExpansionTest, ListsThatAreMergedAnewOnEachLevelGoOutAsTheyAre) {
  EXPECT_NE(Expanded(NestedLists(4, 180'000)), "-");
  // What comes out would not be too large yet.
  EXPECT_EQ(Expanded(NestedLists(5, 180'000)), "-");
  EXPECT_EQ(Expanded(NestedLists(400, 100'000)), "-");
}

// Takes a fraction of a second, and half a minute where a search looks through all of them.
TEST(JsonExpansionTest, NamesChosenToCollideCostNoMoreThanOthers) {
  CollidingNames names;
  std::string text = "{";
  std::set<std::size_t> hashes;
  for (int i = 0; i < 40'000; ++i) {
    const std::string name = names.Next();
    hashes.insert(std::hash<std::string>()(name));
    text += (i == 0 ? "" : ",") + nlohmann::json(name).dump() + ":1";
  }
  ASSERT_EQ(hashes.size(), 1U) << "they do collide";
  const std::clock_t before = std::clock();
  EXPECT_NE(Expanded(text + "}"), "-");
  EXPECT_LT(std::clock() - before, 5 * CLOCKS_PER_SEC);
}

TEST(JsonTextTest, IsEscapedAsJacksonDoes) {
  std::string json;
  ASSERT_TRUE(AppendJsonText("a\"\\/\b\t\n\f\r\x01\x1f\x7f\u00e9\u2603\U0001F600", &json));
  EXPECT_EQ(json, "\"a\\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001F\x7f\u00e9\u2603\\uD83D\\uDE00\"");
}

TEST(JsonTextTest, BytesThatAreNotUtf8AreRejected) {
  for (const char* text : {"\xff", "\xc0\x80", "\xc1\xbf", "\xe2\x98", "\xe0\x9f\xbf",
                           "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x8f\xbf\xbf",
                           "\xf5\x80\x80\x80", "\xe2(\x98", "\xe2\x98(", "\x80"}) {
    std::string json;
    EXPECT_FALSE(AppendJsonText(text, &json)) << text;
  }
}

TEST(JsonTextTest, FirstAndLastCharacterOfEachSizeIsTaken) {
  for (const std::string text :
       {"\u0080", "\u07ff", "\u0800", "\u0fff", "\ud7ff", "\ue000", "\uffff"}) {
    std::string json;
    ASSERT_TRUE(AppendJsonText(text, &json)) << text;
    EXPECT_EQ(json, "\"" + text + "\"");
  }
  std::string json;
  ASSERT_TRUE(AppendJsonText("\U00010000\U0010ffff", &json));
  EXPECT_EQ(json, "\"\\uD800\\uDC00\\uDBFF\\uDFFF\"");
}

TEST(JavaNumberTest, ChangesItsNotationWhereJavaDoes) {
  const std::pair<double, const char*> numbers[] = {
      {0.0, "0.0"},       {-0.0, "-0.0"},           {1.0, "1.0"},    {0.001, "0.001"},
      {0.0001, "1.0E-4"}, {9999999.0, "9999999.0"}, {1e7, "1.0E7"},  {123456.789, "123456.789"},
      {1e21, "1.0E21"},   {1.5e300, "1.5E300"},     {100.0, "100.0"}};
  for (const auto& [number, text] : numbers) {
    EXPECT_EQ(JavaNumber(number), text);
  }
}

}  // namespace
}  // namespace walpost::outbox
