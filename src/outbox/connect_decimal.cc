#include "outbox/connect_decimal.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/byte_reader.h"
#include "base/status.h"

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

}  // namespace walpost::outbox
