#include "outbox/headers_column.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace walpost::outbox {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using std::string_literals::operator""s;

Pairs Parsed(HeadersColumn* column, std::string_view json) {
  const absl::StatusOr<std::span<const Header>> headers = column->Parse(json);
  EXPECT_TRUE(headers.ok()) << headers.status();
  Pairs pairs;
  for (const Header& header : headers.value_or(std::span<const Header>())) {
    pairs.emplace_back(header.name, header.value);
  }
  return pairs;
}

Pairs Parsed(std::string_view json) {
  HeadersColumn column;
  return Parsed(&column, json);
}

TEST(HeadersColumnTest, StringsAreTakenInTheirOrder) {
  EXPECT_EQ(Parsed(R"({"b": "1", "a": "two"})"), Pairs({{"b", "1"}, {"a", "two"}}));
}

TEST(HeadersColumnTest, EmptyObjectHasNoHeaders) {
  EXPECT_EQ(Parsed("{}"), Pairs());
  EXPECT_EQ(Parsed(" { } "), Pairs());
}

TEST(HeadersColumnTest, EscapesAreResolved) {
  EXPECT_EQ(Parsed(R"({"q\"": "a\\b\n\u00fc\ud83d\ude00"})"),
            Pairs({{"q\"", "a\\b\n\u00fc\U0001F600"}}));
  EXPECT_EQ(Parsed(R"({"a": ""})"), Pairs({{"a", ""}}));
}

TEST(HeadersColumnTest, NumbersAndBooleansAreAsJsonWritesThem) {
  EXPECT_EQ(Parsed(R"({"i": -12, "t": true, "f": false, "z": 0})"),
            Pairs({{"i", "-12"}, {"t", "true"}, {"f", "false"}, {"z", "0"}}));
}

// jsonb keeps every digit of a number, and so do we: no rounding, no other notation.
TEST(HeadersColumnTest, NumbersKeepEveryDigit) {
  EXPECT_EQ(
      Parsed(R"({"price": 1.10, "big": 12345678901234567890123, "e": 1e2, "u": 1.0})"),
      Pairs({{"price", "1.10"}, {"big", "12345678901234567890123"}, {"e", "1e2"}, {"u", "1.0"}}));
  EXPECT_EQ(Parsed(R"({"max": 18446744073709551615, "min": -9223372036854775808})"),
            Pairs({{"max", "18446744073709551615"}, {"min", "-9223372036854775808"}}));
}

TEST(HeadersColumnTest, NullMembersAreLeftOut) {
  EXPECT_EQ(Parsed(R"({"a": null, "b": "1", "c": null})"), Pairs({{"b", "1"}}));
}

// Only the type json can hold a name twice; jsonb has kept the last.
TEST(HeadersColumnTest, LastOfTwoEqualNamesCounts) {
  EXPECT_EQ(Parsed(R"({"a": "1", "b": "2", "a": "3"})"), Pairs({{"b", "2"}, {"a", "3"}}));
  EXPECT_EQ(Parsed(R"({"a": "1", "b": "2", "a": null})"), Pairs({{"b", "2"}}));
  EXPECT_EQ(Parsed(R"({"a": "1", "b": "2", "c": "3", "b": "4", "a": "5"})"),
            Pairs({{"c", "3"}, {"b", "4"}, {"a", "5"}}));
}

TEST(HeadersColumnTest, NothingOfTheRowBeforeIsKept) {
  HeadersColumn column;
  Parsed(&column, R"({"a": "1"})");
  EXPECT_EQ(Parsed(&column, R"({"b": "2"})"), Pairs({{"b", "2"}}));
  EXPECT_EQ(Parsed(&column, "{}"), Pairs());
  EXPECT_FALSE(column.Parse(R"({"c": "3", "d": [1]})").ok());
  EXPECT_EQ(Parsed(&column, R"({"e": "4"})"), Pairs({{"e", "4"}}));
}

TEST(HeadersColumnTest, ManyHeadersAreStable) {
  std::string json = "{";
  Pairs expected;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "n" + std::to_string(i);
    json += (i == 0 ? "\"" : ", \"") + name + "\": \"" + name + "\"";
    expected.emplace_back(name, name);
  }
  EXPECT_EQ(Parsed(json + "}"), expected);
}

TEST(HeadersColumnTest, MoreHeadersThanTheLimitAreRejected) {
  const auto object = [](std::size_t count) {
    std::string json = "{\"n0\": 0";
    for (std::size_t i = 1; i < count; ++i) {
      json += ", \"n" + std::to_string(i) + "\": 0";
    }
    return json + "}";
  };
  HeadersColumn column;
  EXPECT_EQ(Parsed(&column, object(kHeadersMax)).size(), kHeadersMax);
  EXPECT_EQ(column.Parse(object(kHeadersMax + 1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HeadersColumnTest, ObjectOrArrayInsideIsRejectedByName) {
  HeadersColumn column;
  for (const char* json : {R"({"ok": "1", "deep": {"s3cret": 1}})", R"({"deep": ["s3cret"]})",
                           R"({"deep": {}})", R"({"deep": []})"}) {
    const absl::Status status = column.Parse(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_EQ(
        status.message(),
        "header 'deep' is an object or array; only text, numbers and booleans can be headers");
  }
}

// jsonb holds numbers that the parser cannot; the object is a JSON object all the same.
TEST(HeadersColumnTest, NumberBeyondADoubleIsRejectedByName) {
  HeadersColumn column;
  for (const std::string& number : {"1e400"s, "-1e999"s, std::string(400, '9')}) {
    EXPECT_EQ(column.Parse("{\"ok\": 1, \"n\": " + number + "}").status().message(),
              "header 'n' is a number too large to be read; write it as text");
  }
}

TEST(HeadersColumnTest, LongNameIsCutInWhatIsSaidOfIt) {
  HeadersColumn column;
  const std::string name(100'000, 'n');
  for (const char* value : {"{}", "1e400"}) {
    const absl::Status status = column.Parse("{\"" + name + "\": " + value + "}").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LE(status.message().size(), 2 * base::kShownBytesMax);
  }
}

TEST(HeadersColumnTest, EmptyNameIsRejected) {
  HeadersColumn column;
  EXPECT_EQ(column.Parse(R"({"": "1"})").status().message(), "a header has an empty name");
}

// What many a library writes for "none".
TEST(HeadersColumnTest, NullOfJsonIsNoHeaders) { EXPECT_EQ(Parsed("null"), Pairs()); }

TEST(HeadersColumnTest, WhatIsNoObjectIsRejectedWithoutShowingIt) {
  HeadersColumn column;
  for (const std::string& json :
       {""s, "1"s, "\"s3cret\""s, "[]"s, "[{\"a\": 1}]"s, "{"s, "{\"s3cret\""s, "s3cret"s,
        "{\"a\": 1} x"s, "{\"a\": 1}{}"s, "{\"a\": \"\xff\"}"s, std::string(100'000, '[')}) {
    const absl::Status status = column.Parse(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json.substr(0, 20);
    EXPECT_EQ(status.message(), "headers are not a JSON object") << json.substr(0, 20);
  }
}

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, TraceparentIsFoundInWhatJavaStores) {
  const std::string line = std::string("traceparent=") + kTrace;
  for (const std::string& text :
       {line, "#Sat Nov 21 15:22:50 UTC 2026\n" + line + "\n", "a=b\r\n" + line + "\r\nc=d\r\n",
        " \t" + line, std::string("traceparent : ") + kTrace, std::string("traceparent ") + kTrace,
        "#a comment never goes on \\\n" + line, "!nor does this one \\\n" + line,
        "a=two backslashes\\\\\n" + line, "traceparent=earlier\n" + line}) {
    EXPECT_EQ(TraceparentOf(text), kTrace) << text;
  }
}

TEST(TraceContextTest, WhatIsNoTraceparentIsNotTaken) {
  const std::string line = std::string("traceparent=") + kTrace;
  for (const std::string& text :
       {std::string(), std::string("traceparent"), std::string("traceparent=\n"), "#" + line,
        "!" + line, "x" + line, "traceparents=" + std::string(kTrace),
        "a=a line that goes on\\\n" + line, "a=a line that goes on\\\r\n" + line,
        std::string("traceparent=00\\u0041")}) {
    EXPECT_EQ(TraceparentOf(text), "") << text;
  }
}

}  // namespace
}  // namespace walpost::outbox
