#include "outbox/connect_value.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/status.h"
#include "outbox/column_value.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;

// numeric_send's marks.
constexpr std::uint16_t kNegative = 0x4000;
constexpr std::uint16_t kPositive = 0x0000;

// "-12.50" from base 10000: `weight` is the power of the first group.
absl::StatusOr<std::string> PlainText(std::string_view bytes) {
  base::ByteReader reader(bytes);
  const std::uint16_t count = reader.U16();
  const auto weight = static_cast<std::int16_t>(reader.U16());
  const std::uint16_t sign = reader.U16();
  const std::uint16_t scale = reader.U16();
  if (sign != kNegative && sign != kPositive) {
    return absl::InvalidArgumentError("a numeric that is no number");
  }
  std::string whole;
  std::string fraction;
  // Groups between the point and the first one are zeroes.
  for (int i = -1; i > weight; --i) {
    fraction += "0000";
  }
  for (int i = 0; i < count; ++i) {
    (weight - i >= 0 ? whole : fraction) += absl::StrFormat("%04d", reader.U16());
  }
  for (int i = count; i <= weight; ++i) {
    whole += "0000";
  }
  if (!reader.AtEnd()) {
    return absl::InvalidArgumentError("a binary numeric of another size");
  }
  fraction.resize(scale, '0');
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  return (sign == kNegative ? "-" : "") + (whole.empty() ? "0" : whole) +
         (fraction.empty() ? "" : "." + fraction);
}

// Java writes small numbers with an exponent.
std::string AsJava(std::string_view plain) {
  const bool negative = !plain.empty() && plain[0] == '-';
  std::string digits;
  std::size_t scale = 0;
  bool after_point = false;
  for (const char c : plain.substr(negative ? 1 : 0)) {
    if (c == '.') {
      after_point = true;
      continue;
    }
    scale += after_point ? 1 : 0;
    digits += c;
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  const int exponent = static_cast<int>(digits.size()) - 1 - static_cast<int>(scale);
  constexpr int kPlainFrom = -6;
  if (scale == 0 || exponent >= kPlainFrom) {
    return std::string(plain);
  }
  const std::string rest = digits.substr(1);
  return absl::StrFormat("%s%c%s%sE%d", negative ? "-" : "", digits[0], rest.empty() ? "" : ".",
                         rest, exponent);
}

}  // namespace

bool HasFixedScale(std::int32_t modifier) {
  // As numeric's own typmod functions: the scale has 11 bits and a sign.
  constexpr std::int32_t kHeader = 4;
  constexpr std::int32_t kSign = 0x400;
  return modifier >= kHeader && ((modifier - kHeader) & kSign) == 0;
}

absl::StatusOr<std::string> DecimalText(const Value& value) {
  if (value.is_binary()) {
    ASSIGN_OR_RETURN(const std::string plain, PlainText(value.bytes));
    return AsJava(plain);
  }
  if (value.bytes.empty() || value.bytes.find_first_not_of("-.0123456789") != value.bytes.npos) {
    return absl::InvalidArgumentError("a numeric that is no number");
  }
  return AsJava(value.bytes);
}

namespace {

constexpr std::int32_t kMillisPrecision = 3;

// One number of `digits` and an exponent, as Java lays it out.
std::string LayOut(bool negative, const std::string& digits, int exponent) {
  std::string text = negative ? "-" : "";
  constexpr int kPlainFrom = -3;
  constexpr int kPlainBelow = 7;
  if (exponent < kPlainFrom || exponent >= kPlainBelow) {
    const std::string rest = digits.size() > 1 ? digits.substr(1) : "0";
    return text + digits[0] + "." + rest + "E" + std::to_string(exponent);
  }
  if (exponent < 0) {
    return text + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  std::string padded = digits;
  padded.resize(std::max(padded.size(), whole), '0');
  const std::string rest = padded.substr(whole);
  return text + padded.substr(0, whole) + "." + (rest.empty() ? "0" : rest);
}

template <typename Number>
std::string PrintJava(Number number) {
  if (std::isnan(number)) {
    return "NaN";
  }
  if (std::isinf(number)) {
    return number < 0 ? "-Infinity" : "Infinity";
  }
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof(text), std::abs(number), std::chars_format::scientific);
  const std::string_view shortest(text, static_cast<std::size_t>(end.ptr - text));
  const std::size_t e = shortest.find('e');
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (c != '.') {
      digits += c;
    }
  }
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  return LayOut(std::signbit(number), digits, exponent);
}

absl::StatusOr<std::string> RealText(const Value& value, std::uint32_t oid) {
  if (value.is_binary()) {
    base::ByteReader reader(value.bytes);
    if (oid == type_oid::kFloat4) {
      const auto number = std::bit_cast<float>(reader.I32());
      return reader.AtEnd() ? absl::StatusOr<std::string>(PrintJava(number))
                            : absl::InvalidArgumentError("a real");
    }
    const auto number = std::bit_cast<double>(reader.I64());
    return reader.AtEnd() ? absl::StatusOr<std::string>(PrintJava(number))
                          : absl::InvalidArgumentError("a double");
  }
  const std::string text(value.bytes);
  if (oid == type_oid::kFloat4) {
    float number = 0;
    return absl::SimpleAtof(text, &number)
               ? absl::StatusOr<std::string>(PrintJava(number))
               : absl::InvalidArgumentError("text that is not a number");
  }
  double number = 0;
  return absl::SimpleAtod(text, &number) ? absl::StatusOr<std::string>(PrintJava(number))
                                         : absl::InvalidArgumentError("text that is not a number");
}

// A column in milliseconds has no more digits: the server has rounded.
absl::StatusOr<std::int64_t> TimeNumber(const Value& value, std::uint32_t oid, bool millis) {
  if (oid == type_oid::kDate) {
    return ToUnixDays(value);
  }
  std::int64_t micros = 0;
  if (oid == type_oid::kTime) {
    ASSIGN_OR_RETURN(micros, ToDayMicros(value));
  } else {
    ASSIGN_OR_RETURN(const base::WallTime time, ToInstant(value));
    micros = time.time_since_epoch().count();
  }
  return millis ? micros / 1000 : micros;
}

absl::StatusOr<std::string> InstantText(const Value& value) {
  ASSIGN_OR_RETURN(const base::WallTime instant, ToInstant(value));
  const absl::Time time = absl::FromUnixMicros(instant.time_since_epoch().count());
  const absl::CivilSecond civil = absl::ToCivilSecond(time, absl::UTCTimeZone());
  if (civil.year() < 1 || civil.year() > 9999) {
    return absl::InvalidArgumentError("a time outside the years 1 to 9999");
  }
  return absl::FormatTime("%E4Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

void AppendEscape(std::uint32_t unit, std::string* json) {
  absl::StrAppendFormat(json, "\\u%04X", unit);
}

// Of a character that starts with `first`; 0 when its bytes are no character.
std::size_t SequenceSize(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const std::size_t size = first < 0x80                     ? 1
                           : first >= 0xC2 && first <= 0xDF ? 2
                           : (first & 0xF0) == 0xE0         ? 3
                           : first >= 0xF0 && first <= 0xF4 ? 4
                                                            : 0;
  if (size == 0 || at + size > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) {
      return 0;
    }
  }
  const auto second = size > 2 ? static_cast<unsigned char>(text[at + 1]) : 0U;
  const bool misfit = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return size > 2 && misfit ? 0 : size;
}

// Jackson writes what lies outside the basic plane as two escapes.
void AppendPair(std::string_view bytes, std::string* json) {
  std::uint32_t code = static_cast<unsigned char>(bytes[0]) & 0x07U;
  for (const char c : bytes.substr(1)) {
    code = (code << 6) | (static_cast<unsigned char>(c) & 0x3FU);
  }
  code -= 0x10000;
  AppendEscape(0xD800 + (code >> 10), json);
  AppendEscape(0xDC00 + (code & 0x3FF), json);
}

void AppendAscii(char c, std::string* json) {
  constexpr std::string_view kShort = "\b\t\n\f\r\"\\";
  constexpr std::string_view kNames = "btnfr\"\\";
  if (const std::size_t i = kShort.find(c); i != std::string_view::npos) {
    *json += '\\';
    *json += kNames[i];
  } else if (static_cast<unsigned char>(c) < 0x20) {
    AppendEscape(static_cast<unsigned char>(c), json);
  } else {
    *json += c;
  }
}

}  // namespace

bool AppendJsonText(std::string_view text, std::string* json) {
  *json += '"';
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = SequenceSize(text, i);
    if (size == 0) {
      return false;
    }
    if (size == 1) {
      AppendAscii(text[i], json);
    } else if (size == 4) {
      AppendPair(text.substr(i, size), json);
    } else {
      json->append(text.substr(i, size));
    }
    i += size;
  }
  *json += '"';
  return true;
}

std::string JavaNumber(double number) { return PrintJava(number); }

std::optional<ConnectColumn> ConnectColumn::Of(std::uint32_t oid, std::int32_t modifier,
                                               bool is_domain) {
  switch (oid) {
    case type_oid::kBool:
      return ConnectColumn(Kind::kBool, oid, false);
    case type_oid::kInt2:
    case type_oid::kInt4:
    case type_oid::kInt8:
    case type_oid::kOid:
      return ConnectColumn(Kind::kInteger, oid, false);
    case type_oid::kFloat4:
    case type_oid::kFloat8:
      return ConnectColumn(Kind::kReal, oid, false);
    case type_oid::kBytea:
      return ConnectColumn(Kind::kBytes, oid, false);
    case type_oid::kDate:
      return ConnectColumn(Kind::kTime, oid, false);
    case type_oid::kTime:
    case type_oid::kTimestamp:
      if (is_domain) {
        return std::nullopt;  // milliseconds or microseconds: not known
      }
      return ConnectColumn(Kind::kTime, oid, modifier >= 0 && modifier <= kMillisPrecision);
    case type_oid::kTimestamptz:
      return ConnectColumn(Kind::kInstant, oid, false);
    case type_oid::kNumeric:
      if (is_domain || !HasFixedScale(modifier)) {
        return std::nullopt;  // a structure in Kafka Connect
      }
      return ConnectColumn(Kind::kDecimal, oid, false);
    default:
      if (!IsTextual(oid)) {
        return std::nullopt;
      }
      return ConnectColumn(Kind::kText, oid, false);
  }
}

absl::StatusOr<std::string_view> ConnectColumn::Text(const Value& value,
                                                     std::string* scratch) const {
  switch (kind_) {
    case Kind::kText:
    case Kind::kBool:
      return ToText(value, oid_, scratch);
    case Kind::kInteger:
      if (oid_ == type_oid::kOid && value.is_binary()) {
        base::ByteReader reader(value.bytes);
        *scratch = std::to_string(static_cast<std::uint32_t>(reader.I32()));
        return std::string_view(*scratch);
      }
      return ToText(value, oid_, scratch);
    case Kind::kBytes: {
      std::string raw;
      ASSIGN_OR_RETURN(const std::string_view bytes, ToBytes(value, oid_, &raw));
      *scratch = absl::Base64Escape(absl::string_view(bytes.data(), bytes.size()));
      return std::string_view(*scratch);
    }
    case Kind::kReal: {
      ASSIGN_OR_RETURN(*scratch, RealText(value, oid_));
      return std::string_view(*scratch);
    }
    case Kind::kDecimal: {
      ASSIGN_OR_RETURN(*scratch, DecimalText(value));
      return std::string_view(*scratch);
    }
    case Kind::kTime: {
      ASSIGN_OR_RETURN(const std::int64_t number, TimeNumber(value, oid_, millis_));
      *scratch = std::to_string(number);
      return std::string_view(*scratch);
    }
    case Kind::kInstant:
      break;
  }
  ASSIGN_OR_RETURN(*scratch, InstantText(value));
  return std::string_view(*scratch);
}

absl::Status ConnectColumn::AppendJson(const Value& value, std::string* json) const {
  if (value.kind == Value::Kind::kNull) {
    *json += "null";
    return absl::OkStatus();
  }
  std::string scratch;
  ASSIGN_OR_RETURN(const std::string_view text, Text(value, &scratch));
  const bool named_number = kind_ == Kind::kReal && text.find_first_of("NI") != text.npos;
  if (kind_ == Kind::kText || kind_ == Kind::kInstant || kind_ == Kind::kBytes || named_number) {
    return AppendJsonText(text, json) ? absl::OkStatus()
                                      : absl::InvalidArgumentError("text that is not UTF-8");
  }
  json->append(text);
  return absl::OkStatus();
}

}  // namespace walpost::outbox
