// Values as Kafka Connect writes them, from both forms the server may send. What Debezium really
// writes is compared in tests/debezium.
#include "outbox/connect_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "outbox/column_value.h"
#include "support/pgoutput_bytes.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;
using testing::BigEndian;
using std::string_literals::operator""s;

constexpr std::int32_t kNumeric12_3 = ((12 << 16) | 3) + 4;
constexpr std::int32_t kNumeric12_10 = ((12 << 16) | 10) + 4;
constexpr std::int32_t kNumeric10_2 = ((10 << 16) | 2) + 4;
constexpr std::int32_t kNumeric10_10 = ((10 << 16) | 10) + 4;
constexpr std::int64_t kDaySeconds = 86'400;
constexpr std::int64_t kSecondsOf2000 = 946'684'800;

struct Case {
  std::uint32_t oid;
  std::int32_t modifier;
  std::string text;    // of the server
  std::string binary;  // empty: not sent so
  std::string header;
  std::string json;
};

std::string Header(const Case& c, Value::Kind kind, std::string_view bytes) {
  std::string scratch;
  const auto column = ConnectColumn::Of(c.oid, c.modifier, false);
  const auto text = column->Text({kind, bytes}, &scratch);
  return text.ok() ? std::string(*text) : std::string(text.status().message());
}

std::string Json(const Case& c, Value::Kind kind, std::string_view bytes) {
  std::string json;
  const absl::Status status =
      ConnectColumn::Of(c.oid, c.modifier, false)->AppendJson({kind, bytes}, &json);
  return status.ok() ? json : std::string(status.message());
}

std::string Micros(std::int64_t unix_micros) {
  return BigEndian(unix_micros - kSecondsOf2000 * 1'000'000, 8);
}

const Case kCases[] = {
    {type_oid::kBool, -1, "t", "\x01", "true", "true"},
    {type_oid::kBool, -1, "f", "\0"s, "false", "false"},
    {type_oid::kInt2, -1, "-5", BigEndian(0xFFFB, 2), "-5", "-5"},
    {type_oid::kOid, -1, "4294967295", "\xff\xff\xff\xff", "4294967295", "4294967295"},
    {type_oid::kFloat4, -1, "0.1", BigEndian(0x3DCCCCCD, 4), "0.1", "0.1"},
    {type_oid::kFloat8, -1, "1e+10", BigEndian(0x4202A05F20000000, 8), "1.0E10", "1.0E10"},
    {type_oid::kFloat8, -1, "NaN", BigEndian(0x7FF8000000000000, 8), "NaN", "\"NaN\""},
    {type_oid::kFloat8, -1, "-Infinity", BigEndian(-0x10000000000000, 8), "-Infinity",
     "\"-Infinity\""},
    {type_oid::kText, -1, "a\"b", "a\"b", "a\"b", R"("a\"b")"},
    {type_oid::kBytea, -1, "\\x00ff", "\0\xff"s, "AP8=", "\"AP8=\""},
    {type_oid::kDate, -1, "2024-02-29", BigEndian(19782 - 10957, 4), "19782", "19782"},
    {type_oid::kDate, -1, "1999-12-31", "\xff\xff\xff\xff", "10956", "10956"},
    {type_oid::kTime, -1, "24:00:00", BigEndian(86'400'000'000, 8), "86400000000", "86400000000"},
    {type_oid::kTime, 3, "01:02:03.004", BigEndian(3'723'004'000, 8), "3723004", "3723004"},
    {type_oid::kTime, 4, "01:02:03.0041", BigEndian(3'723'004'100, 8), "3723004100", "3723004100"},
    {type_oid::kTimestamp, 6, "1969-12-31 23:59:59.5", Micros(-500'000), "-500000", "-500000"},
    {type_oid::kTimestamp, 0, "1969-12-31 23:59:59", Micros(-1'000'000), "-1000", "-1000"},
    {type_oid::kTimestamp, 3, "1969-12-31 23:59:59.999", Micros(-1'000), "-1", "-1"},
    {type_oid::kTimestamp, -1, "1970-01-02 00:00:00", Micros(kDaySeconds * 1'000'000),
     "86400000000", "86400000000"},
    {type_oid::kTimestamptz, -1, "1970-01-01 02:00:00.5+02", Micros(500'000),
     "1970-01-01T00:00:00.500000Z", "\"1970-01-01T00:00:00.500000Z\""},
    // numeric_send: groups of four digits, weight of the first, sign, scale.
    {type_oid::kNumeric, kNumeric12_3, "-12345.125",
     BigEndian(3, 2) + BigEndian(1, 2) + BigEndian(0x4000, 2) + BigEndian(3, 2) + BigEndian(1, 2) +
         BigEndian(2345, 2) + BigEndian(1250, 2),
     "-12345.125", "-12345.125"},
    {type_oid::kNumeric, kNumeric12_3, "0.000",
     BigEndian(0, 2) + BigEndian(0, 2) + BigEndian(0, 2) + BigEndian(3, 2), "0.000", "0.000"},
    {type_oid::kNumeric, kNumeric12_10, "0.0000000001",
     BigEndian(1, 2) + BigEndian(0xFFFD, 2) + BigEndian(0, 2) + BigEndian(10, 2) +
         BigEndian(100, 2),
     "1E-10", "1E-10"},
    {type_oid::kNumeric, kNumeric12_10, "0.0000000120",
     BigEndian(2, 2) + BigEndian(0xFFFE, 2) + BigEndian(0, 2) + BigEndian(10, 2) + BigEndian(1, 2) +
         BigEndian(2000, 2),
     "1.20E-8", "1.20E-8"},
    {type_oid::kNumeric, kNumeric12_3, "1000000.000",
     BigEndian(1, 2) + BigEndian(1, 2) + BigEndian(0, 2) + BigEndian(3, 2) + BigEndian(100, 2),
     "1000000.000", "1000000.000"},
};

TEST(ConnectValueTest, TextAndBinaryFormsGiveTheSame) {
  for (const Case& c : kCases) {
    EXPECT_EQ(Header(c, Value::Kind::kText, c.text), c.header) << c.text;
    EXPECT_EQ(Json(c, Value::Kind::kText, c.text), c.json) << c.text;
    EXPECT_EQ(Header(c, Value::Kind::kBinary, c.binary), c.header) << c.text;
    EXPECT_EQ(Json(c, Value::Kind::kBinary, c.binary), c.json) << c.text;
  }
}

// What PostgreSQL 15 writes as text and sends as bytes, at the ends of each type's range. The
// stream is binary and verbs read text: they must agree also about what is no value.
struct Odd {
  std::uint32_t oid;
  std::int32_t modifier;
  const char* text;
  const char* sent;    // in hex
  const char* header;  // nullptr: none
};

const Odd kOdd[] = {
    {type_oid::kBool, -1, "f", "00", "false"},
    {type_oid::kInt2, -1, "-32768", "8000", "-32768"},
    {type_oid::kInt4, -1, "-2147483648", "80000000", "-2147483648"},
    {type_oid::kInt8, -1, "-9223372036854775808", "8000000000000000", "-9223372036854775808"},
    {type_oid::kInt8, -1, "0", "0000000000000000", "0"},
    {type_oid::kOid, -1, "0", "00000000", "0"},
    {type_oid::kFloat4, -1, "1e-45", "00000001", "1.0E-45"},
    {type_oid::kFloat4, -1, "3.4028235e+38", "7f7fffff", "3.4028235E38"},
    {type_oid::kFloat4, -1, "1.6777216e+07", "4b800000", "1.6777216E7"},
    {type_oid::kFloat4, -1, "-0", "80000000", "-0.0"},
    {type_oid::kFloat4, -1, "NaN", "7fc00000", "NaN"},
    {type_oid::kFloat4, -1, "-Infinity", "ff800000", "-Infinity"},
    {type_oid::kFloat8, -1, "5e-324", "0000000000000001", "5.0E-324"},
    {type_oid::kFloat8, -1, "1.7976931348623157e+308", "7fefffffffffffff",
     "1.7976931348623157E308"},
    {type_oid::kFloat8, -1, "-0", "8000000000000000", "-0.0"},
    {type_oid::kFloat8, -1, "NaN", "fff8000000000000", "NaN"},
    {type_oid::kFloat8, -1, "Infinity", "7ff0000000000000", "Infinity"},
    {type_oid::kNumeric, kNumeric10_2, "0.00", "0000000000000002", "0.00"},
    {type_oid::kNumeric, kNumeric10_2, "-99999999.99", "0003000140000002270f270f26ac",
     "-99999999.99"},
    {type_oid::kNumeric, kNumeric10_2, "10000.10", "00030001000000020001000003e8", "10000.10"},
    {type_oid::kNumeric, kNumeric10_10, "0.0001000000", "0001ffff0000000a0001", "0.0001000000"},
    {type_oid::kNumeric, kNumeric10_2, "NaN", "00000000c0000000", nullptr},
    {type_oid::kNumeric, kNumeric10_2, "Infinity", "00000000d0000020", nullptr},
    {type_oid::kDate, -1, "4714-11-24 BC", "ffda97a7", "-2440588"},
    {type_oid::kDate, -1, "0044-03-15 BC", "fff49d7b", "-735160"},
    {type_oid::kDate, -1, "0005-02-29 BC", "fff4d511", "-720930"},
    {type_oid::kDate, -1, "0001-12-31 BC", "fff4dbf8", "-719163"},
    {type_oid::kDate, -1, "0001-01-01", "fff4dbf9", "-719162"},
    {type_oid::kDate, -1, "5874897-12-31", "7fda970c", "2145042905"},
    {type_oid::kDate, -1, "infinity", "7fffffff", nullptr},
    {type_oid::kDate, -1, "-infinity", "80000000", nullptr},
    {type_oid::kTime, -1, "00:00:00", "0000000000000000", "0"},
    {type_oid::kTime, -1, "23:59:59.999999", "000000141dd75fff", "86399999999"},
    {type_oid::kTime, 3, "24:00:00", "000000141dd76000", "86400000"},
    {type_oid::kTimestamp, -1, "4714-11-24 00:00:00 BC", "fd0f7cc1411fa000", "-210866803200000000"},
    {type_oid::kTimestamp, 3, "0044-03-15 12:34:56.789 BC", "ff1af9e978414608", "-63517778703211"},
    {type_oid::kTimestamp, -1, "0001-12-31 23:59:59.999999 BC", "ff1fe2ffc59c5fff",
     "-62135596800000001"},
    {type_oid::kTimestamp, -1, "294247-01-10 04:00:54.775807", "7ffca2fec4c81fff",
     "9223372036854775807"},
    // Beyond what 64 bits count from 1970 on.
    {type_oid::kTimestamp, -1, "294247-01-10 04:00:54.775808", "7ffca2fec4c82000", nullptr},
    {type_oid::kTimestamp, -1, "294276-12-31 23:59:59.999999", "7fffff5bb3b29fff", nullptr},
    {type_oid::kTimestamp, -1, "infinity", "7fffffffffffffff", nullptr},
    {type_oid::kTimestamp, -1, "-infinity", "8000000000000000", nullptr},
    {type_oid::kTimestamptz, -1, "0001-12-31 23:30:00-01 BC", "ff1fe30030e63200",
     "0001-01-01T00:30:00.000000Z"},
    {type_oid::kTimestamptz, -1, "0001-12-31 23:59:59.999999+00 BC", "ff1fe2ffc59c5fff", nullptr},
    {type_oid::kTimestamptz, -1, "294276-12-31 23:59:59.999999+00", "7fffff5bb3b29fff", nullptr},
    {type_oid::kTimestamptz, -1, "-infinity", "8000000000000000", nullptr},
    {type_oid::kUuid, -1, "00000000-0000-0000-0000-0000000000ff",
     "000000000000000000000000000000ff", "00000000-0000-0000-0000-0000000000ff"},
    {type_oid::kBytea, -1, "\\x", "", ""},
    {type_oid::kJsonb, -1, "{}", "017b7d", "{}"},
    {type_oid::kBpchar, 9, "     ", "2020202020", "     "},
};

TEST(ConnectValueTest, OddValuesThenTextAndBinaryFormsGiveTheSame) {
  for (const Odd& odd : kOdd) {
    const auto column = ConnectColumn::Of(odd.oid, odd.modifier, false);
    const std::string sent = absl::HexStringToBytes(odd.sent);
    for (const Value& value :
         {Value{Value::Kind::kText, odd.text}, Value{Value::Kind::kBinary, sent}}) {
      std::string scratch;
      const auto header = column->Text(value, &scratch);
      EXPECT_EQ(header.ok(), odd.header != nullptr) << odd.text << ": " << header.status();
      if (!header.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(header.status())) << odd.text;
      } else if (odd.header != nullptr) {
        EXPECT_EQ(*header, std::string_view(odd.header)) << odd.text;
      }
    }
  }
}

TEST(ConnectValueTest, NullIsNullInJson) {
  EXPECT_EQ(Json(kCases[0], Value::Kind::kNull, ""), "null");
}

TEST(ConnectValueTest, TypesWithoutAProvenFormAreNotSupported) {
  constexpr std::uint32_t kInterval = 1186;
  constexpr std::uint32_t kPoint = 600;
  constexpr std::uint32_t kTextArray = 1009;
  for (const std::uint32_t oid : {kInterval, kPoint, kTextArray, 0U}) {
    EXPECT_FALSE(ConnectColumn::Of(oid, -1, false)) << oid;
  }
  // A structure in Kafka Connect, and a scale below zero.
  EXPECT_FALSE(ConnectColumn::Of(type_oid::kNumeric, -1, false));
  EXPECT_FALSE(ConnectColumn::Of(type_oid::kNumeric, ((6 << 16) | (0x7FF & -2)) + 4, false));
}

// The precision stands in the domain, which nobody sends.
TEST(ConnectValueTest, DomainOverATypeWithPrecisionIsNotSupported) {
  for (const std::uint32_t oid : {type_oid::kTimestamp, type_oid::kTime, type_oid::kNumeric}) {
    EXPECT_FALSE(ConnectColumn::Of(oid, kNumeric12_3, true)) << oid;
  }
  EXPECT_TRUE(ConnectColumn::Of(type_oid::kText, -1, true));
}

TEST(ConnectValueTest, ValuesWithoutAFormAreErrorsWithoutTheValue) {
  const Case infinite[] = {
      {type_oid::kTimestamp, -1, "infinity", BigEndian(0x7FFFFFFFFFFFFFFF, 8), "", ""},
      {type_oid::kTimestamptz, -1, "-infinity", BigEndian(INT64_MIN, 8), "", ""},
      {type_oid::kDate, -1, "infinity", BigEndian(0x7FFFFFFF, 4), "", ""},
      {type_oid::kNumeric, kNumeric12_3, "NaN",
       BigEndian(0, 4) + BigEndian(0xC000, 2) + BigEndian(0, 2), "", ""},
      {type_oid::kTimestamp, -1, "2024", "\x01", "", ""},
      {type_oid::kDate, -1, "x", "\x01", "", ""},
      {type_oid::kDate, -1, "0000-01-01 BC", "\x01", "", ""},
      {type_oid::kNumeric, kNumeric12_3, "x", "\x01", "", ""},
      {type_oid::kFloat8, -1, "x", "\x01", "", ""}};
  for (const Case& c : infinite) {
    std::string scratch;
    for (const Value& value :
         {Value{Value::Kind::kText, c.text}, Value{Value::Kind::kBinary, c.binary}}) {
      const auto text = ConnectColumn::Of(c.oid, c.modifier, false)->Text(value, &scratch);
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
    }
  }
}

}  // namespace
}  // namespace walpost::outbox
