#include "outbox/column_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "outbox/options.h"
#include "support/pgoutput_bytes.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;
using testing::BigEndian;
using ::testing::HasSubstr;
using ::testing::Not;
using std::string_literals::operator""s;

constexpr std::uint32_t kNumeric = 1700;
constexpr std::uint32_t kTimestamp = 1114;
constexpr std::uint32_t kEnum = type_oid::kFirstUserType;
constexpr char kUuidText[] = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";
const std::string kUuidBytes = "\x3f\x25\x04\xe0\x4f\x89\x11\xd3\x9a\x0c\x03\x05\xe8\x2c\x33\x01"s;
const std::string kWrong = "s3cret";  // fits no type but text

Value Text(std::string_view bytes) { return {Value::Kind::kText, bytes}; }

Value Binary(std::string_view bytes) { return {Value::Kind::kBinary, bytes}; }

// By value: what the view points to is gone with the scratch.
absl::StatusOr<std::string> AsText(const Value& value, std::uint32_t oid) {
  std::string scratch;
  const absl::StatusOr<std::string_view> text = ToText(value, oid, &scratch);
  return text.ok() ? absl::StatusOr<std::string>(std::string(*text)) : text.status();
}

absl::StatusOr<std::string> AsBytes(const Value& value, std::uint32_t oid) {
  std::string scratch;
  const absl::StatusOr<std::string_view> bytes = ToBytes(value, oid, &scratch);
  return bytes.ok() ? absl::StatusOr<std::string>(std::string(*bytes)) : bytes.status();
}

TEST(ToTextTest, TextualTypesAreTheSameInBothForms) {
  for (const std::uint32_t oid : {type_oid::kText, type_oid::kVarchar, type_oid::kBpchar,
                                  type_oid::kName, type_oid::kJson, kEnum}) {
    for (const std::string& text : {"grüße  "s, ""s, "a\0b"s}) {
      EXPECT_EQ(AsText(Text(text), oid).value(), text) << TypeName(oid);
      EXPECT_EQ(AsText(Binary(text), oid).value(), text) << TypeName(oid);
    }
  }
}

TEST(ToTextTest, UuidIsWrittenAsPostgresDoes) {
  EXPECT_EQ(AsText(Text(kUuidText), type_oid::kUuid).value(), kUuidText);
  EXPECT_EQ(AsText(Binary(kUuidBytes), type_oid::kUuid).value(), kUuidText);
}

TEST(ToTextTest, BooleanIsAWord) {
  EXPECT_EQ(AsText(Text("t"), type_oid::kBool).value(), "true");
  EXPECT_EQ(AsText(Text("f"), type_oid::kBool).value(), "false");
  EXPECT_EQ(AsText(Binary("\x01"), type_oid::kBool).value(), "true");
  EXPECT_EQ(AsText(Binary("\0"s), type_oid::kBool).value(), "false");
}

TEST(ToTextTest, IntegersAreDecimalToTheirLimits) {
  EXPECT_EQ(AsText(Binary(BigEndian(-32768, 2)), type_oid::kInt2).value(), "-32768");
  EXPECT_EQ(AsText(Binary(BigEndian(32767, 2)), type_oid::kInt2).value(), "32767");
  EXPECT_EQ(AsText(Binary(BigEndian(INT32_MIN, 4)), type_oid::kInt4).value(), "-2147483648");
  EXPECT_EQ(AsText(Binary(BigEndian(0, 4)), type_oid::kInt4).value(), "0");
  EXPECT_EQ(AsText(Binary(BigEndian(INT64_MIN, 8)), type_oid::kInt8).value(),
            "-9223372036854775808");
  EXPECT_EQ(AsText(Binary(BigEndian(INT64_MAX, 8)), type_oid::kInt8).value(),
            "9223372036854775807");
  EXPECT_EQ(AsText(Text("-12"), type_oid::kInt8).value(), "-12");
}

TEST(ToTextTest, BinaryJsonbLosesItsVersionByte) {
  EXPECT_EQ(AsText(Binary("\x01{\"a\": 1}"), type_oid::kJsonb).value(), "{\"a\": 1}");
  EXPECT_EQ(AsText(Text("{\"a\": 1}"), type_oid::kJsonb).value(), "{\"a\": 1}");
}

TEST(ToTextTest, UnknownJsonbVersionIsRejected) {
  EXPECT_EQ(AsText(Binary("\x02{}"), type_oid::kJsonb).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(AsText(Binary(""), type_oid::kJsonb).ok());
}

TEST(ToTextTest, BinaryOfTheWrongSizeIsRejectedWithoutShowingIt) {
  for (const std::uint32_t oid : {type_oid::kUuid, type_oid::kBool, type_oid::kInt2,
                                  type_oid::kInt4, type_oid::kInt8, type_oid::kJsonb}) {
    const absl::Status status = AsText(Binary(kWrong), oid).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << TypeName(oid);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kWrong)));
    EXPECT_FALSE(AsText(Binary(""), oid).ok()) << TypeName(oid);
  }
  EXPECT_EQ(AsText(Binary(kWrong), type_oid::kUuid).status().message(), "a binary uuid of 6 bytes");
}

TEST(ToBytesTest, ByteaIsItsRawBytesInBothForms) {
  const std::string raw = "\0\xff\\x"s;
  EXPECT_EQ(AsBytes(Binary(raw), type_oid::kBytea).value(), raw);
  EXPECT_EQ(AsBytes(Text("\\x00ff5c78"), type_oid::kBytea).value(), raw);
  EXPECT_EQ(AsBytes(Text("\\x00FF5C78"), type_oid::kBytea).value(), raw);
  EXPECT_EQ(AsBytes(Text("\\x"), type_oid::kBytea).value(), "");
  EXPECT_EQ(AsBytes(Binary(""), type_oid::kBytea).value(), "");
}

TEST(ToBytesTest, EveryByteIsReadFromHex) {
  std::string all;
  std::string hex = "\\x";
  for (int i = 0; i < 256; ++i) {
    all.push_back(static_cast<char>(i));
    hex += "0123456789abcdef"[i / 16];
    hex += "0123456789abcdef"[i % 16];
  }
  EXPECT_EQ(AsBytes(Text(hex), type_oid::kBytea).value(), all);
}

TEST(ToBytesTest, ByteaNotInHexIsRejectedWithoutShowingIt) {
  for (const char* text : {"", "\\", "x00", "\\x0", "\\x0g", "\\xg0", "\\x0/", "\\x:0", "\\x0@",
                           "\\xG0", "\\x0`", "\\000", "s3cret", "\\X00"}) {
    const absl::Status status = AsBytes(Text(text), type_oid::kBytea).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message(), "a bytea that is not in hex form");
  }
}

TEST(ToBytesTest, EverythingElseIsItsText) {
  EXPECT_EQ(AsBytes(Binary(kUuidBytes), type_oid::kUuid).value(), kUuidText);
  EXPECT_EQ(AsBytes(Binary("\x01[1]"), type_oid::kJsonb).value(), "[1]");
  EXPECT_EQ(AsBytes(Text("\\x00"), type_oid::kText).value(), "\\x00");
}

TEST(ToIntegerTest, EveryWidthInBothForms) {
  EXPECT_EQ(ToInteger(Binary(BigEndian(-2, 2)), type_oid::kInt2).value(), -2);
  EXPECT_EQ(ToInteger(Binary(BigEndian(-2, 4)), type_oid::kInt4).value(), -2);
  EXPECT_EQ(ToInteger(Binary(BigEndian(-2, 8)), type_oid::kInt8).value(), -2);
  EXPECT_EQ(ToInteger(Text("-9223372036854775808"), type_oid::kInt8).value(), INT64_MIN);
}

TEST(ToIntegerTest, AnythingElseIsRejected) {
  for (const char* text : {"", " 1", "1 ", "1.0", "x", "9223372036854775808", "0x1"}) {
    EXPECT_EQ(ToInteger(Text(text), type_oid::kInt8).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_FALSE(ToInteger(Binary(BigEndian(1, 4)), type_oid::kInt8).ok());
  EXPECT_FALSE(ToInteger(Binary(BigEndian(1, 8)), type_oid::kInt4).ok());
}

TEST(ToTimeTest, BothFormsAreTheSameInstant) {
  const base::WallTime time = base::FromPostgresMicros(762'546'599'123'456);
  EXPECT_EQ(ToTime(Binary(BigEndian(762'546'599'123'456, 8))).value(), time);
  for (const char* text : {"2024-02-29 18:29:59.123456+00", "2024-02-29 23:59:59.123456+05:30",
                           "2024-02-29 15:29:59.123456-03", "2024-02-29 18:29:59.123456+00:00"}) {
    EXPECT_EQ(ToTime(Text(text)).value(), time) << text;
  }
}

TEST(ToTimeTest, FractionMayBeShorterOrMissing) {
  const base::WallTime epoch = base::FromPostgresMicros(0);
  EXPECT_EQ(ToTime(Text("2000-01-01 00:00:00+00")).value(), epoch);
  EXPECT_EQ(ToTime(Text("2000-01-01 00:00:00.5+00")).value(),
            epoch + std::chrono::milliseconds(500));
  EXPECT_EQ(ToTime(Text("1999-12-31 23:59:59.999999+00")).value(),
            epoch - std::chrono::microseconds(1));
}

TEST(ToTimeTest, InfinityIsRejectedInBothForms) {
  for (const std::int64_t micros :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_EQ(ToTime(Binary(BigEndian(micros, 8))).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  for (const char* text : {"infinity", "-infinity", "infinite-future", "infinite-past"}) {
    EXPECT_EQ(ToTime(Text(text)).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// No format has such a time; with `infinity` they are all that a timestamptz can be.
TEST(ToTimeTest, YearsOutsideOneToFourDigitsAreRejectedInBothForms) {
  constexpr std::int64_t kFirst = -63'082'281'600'000'000;  // 0001-01-01, of PostgreSQL's epoch
  constexpr std::int64_t kLast = 252'455'615'999'999'999;   // the last microsecond of 9999
  for (const std::int64_t micros : {kFirst, kLast}) {
    EXPECT_EQ(ToTime(Binary(BigEndian(micros, 8))).value(), base::FromPostgresMicros(micros));
  }
  constexpr std::int64_t kYear20000 = 568'024'444'800'000'000;
  constexpr std::int64_t k44Bc = -64'465'200'000'000'000;
  for (const std::int64_t micros : {kFirst - 1, kLast + 1, kYear20000, k44Bc}) {
    EXPECT_EQ(ToTime(Binary(BigEndian(micros, 8))).status().code(),
              absl::StatusCode::kInvalidArgument)
        << micros;
  }
  EXPECT_EQ(ToTime(Text("0001-01-01 00:00:00+00")).value(), base::FromPostgresMicros(kFirst));
  EXPECT_EQ(ToTime(Text("9999-12-31 23:59:59.999999+00")).value(), base::FromPostgresMicros(kLast));
  EXPECT_EQ(ToTime(Text("0001-12-31 23:00:00-01 BC")).value(), base::FromPostgresMicros(kFirst));
  for (const char* text :
       {"20000-01-01 00:00:00+00", "10000-01-01 00:00:00+00", "9999-12-31 23:59:59-01",
        "0001-01-01 00:00:00+01", "0044-03-15 12:00:00+00 BC"}) {
    EXPECT_EQ(ToTime(Text(text)).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ToTimeTest, AnythingElseIsRejectedWithoutShowingIt) {
  for (const char* text : {"", "s3cret", "2024-02-29", "2024-02-30 00:00:00+00",
                           "0044-03-15 12:00:00+00 BC", "Thu Feb 29 12:00:00 2024 UTC"}) {
    const absl::Status status = ToTime(Text(text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
  }
  EXPECT_FALSE(ToTime(Binary(BigEndian(1, 4))).ok());
  EXPECT_FALSE(ToTime(Binary("")).ok());
}

TEST(TypeTest, WhatCanBeTextPayloadOrInteger) {
  for (const std::uint32_t oid :
       {type_oid::kBool, type_oid::kName, type_oid::kInt8, type_oid::kInt2, type_oid::kInt4,
        type_oid::kText, type_oid::kJson, type_oid::kBpchar, type_oid::kVarchar, type_oid::kUuid,
        type_oid::kJsonb, kEnum}) {
    EXPECT_TRUE(IsTextual(oid)) << TypeName(oid);
    EXPECT_TRUE(IsPayload(oid)) << TypeName(oid);
  }
  EXPECT_TRUE(IsPayload(type_oid::kBytea));
  EXPECT_FALSE(IsTextual(type_oid::kBytea));
  for (const std::uint32_t oid : {kNumeric, kTimestamp, type_oid::kTimestamptz}) {
    EXPECT_FALSE(IsTextual(oid)) << TypeName(oid);
    EXPECT_FALSE(IsPayload(oid)) << TypeName(oid);
  }
  EXPECT_TRUE(IsInteger(type_oid::kInt2));
  EXPECT_TRUE(IsInteger(type_oid::kInt4));
  EXPECT_TRUE(IsInteger(type_oid::kInt8));
  EXPECT_FALSE(IsInteger(type_oid::kText));
}

TEST(TypeTest, BuiltInTypesAreKnownByTheirNameInTheCatalog) {
  // As pg_type has them.
  for (const auto& [name, oid] : std::map<std::string, std::uint32_t>{
           {"bool", 16},          {"bytea", 17},     {"name", 19},    {"int8", 20},
           {"int2", 21},          {"int4", 23},      {"text", 25},    {"oid", 26},
           {"json", 114},         {"float4", 700},   {"float8", 701}, {"bpchar", 1042},
           {"varchar", 1043},     {"date", 1082},    {"time", 1083},  {"timestamp", 1114},
           {"timestamptz", 1184}, {"numeric", 1700}, {"uuid", 2950},  {"jsonb", 3802}}) {
    EXPECT_EQ(BuiltInType(name), oid) << name;
  }
  EXPECT_EQ(BuiltInType("money"), 0U);
  EXPECT_EQ(BuiltInType("_text"), 0U);
  EXPECT_EQ(BuiltInType(""), 0U);
}

TEST(TypeTest, NameIsTheOneOfSql) {
  EXPECT_EQ(TypeName(type_oid::kVarchar), "character varying");
  EXPECT_EQ(TypeName(type_oid::kTimestamptz), "timestamptz");
  EXPECT_EQ(TypeName(790), "type with OID 790");
}

constexpr std::uint32_t kDomain = 16390;

TEST(AnnouncedTypesTest, NoMoreAreKeptThanATableHasColumns) {
  AnnouncedTypes types;
  for (std::uint32_t i = 0; i <= AnnouncedTypes::kMax; ++i) {
    types.Add({kDomain + i, "", "uuid"});
  }
  TableMapper mapper(*PresetOptions("walpost"));
  types.GiveTo(&mapper);
  EXPECT_EQ(mapper.ReadableType(kDomain + AnnouncedTypes::kMax - 1), type_oid::kUuid);
  EXPECT_EQ(mapper.ReadableType(kDomain + AnnouncedTypes::kMax), 0U);
}

TEST(AnnouncedTypesTest, MapperKeepsThoseOfItsNewestAnnouncement) {
  AnnouncedTypes types;
  TableMapper mapper(*PresetOptions("walpost"));
  for (std::uint32_t i = 0; i < 10; ++i) {
    types.Add({kDomain + i, "", "uuid"});
    types.GiveTo(&mapper);
  }
  EXPECT_EQ(mapper.ReadableType(kDomain), 0U);
  EXPECT_EQ(mapper.ReadableType(kDomain + 9), type_oid::kUuid);
}

}  // namespace
}  // namespace walpost::outbox
