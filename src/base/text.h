// Text - whether bytes are text of a kind, or equal but for case; bytes as hexadecimal digits.
// Why: each event's texts are looked at several times, and nearly all are ASCII: eight bytes at a time.
// Thread: free functions.
// Source: RFC 3629 (UTF-8).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace walpost::base {

// No surrogates, nothing longer than it must be, nothing above U+10FFFF: what a protobuf string may hold.
bool IsUtf8(std::string_view text);

// Whether it stands in JSON as it is: nothing below a space, no quote, no backslash. Not whether it is
// UTF-8.
bool IsPlainInJson(std::string_view text);

// Of letters of ASCII the case is not looked at; all other bytes must be the same.
bool EqualsIgnoringCase(std::string_view one, std::string_view other);
bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix);

inline constexpr auto kHexPairs = [] {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<char, 512> pairs{};
  for (std::size_t i = 0; i < 256; ++i) {
    pairs[2 * i] = kDigits[i >> 4];
    pairs[2 * i + 1] = kDigits[i & 0xF];
  }
  return pairs;
}();

// Two digits, lower case. Returns the end.
inline char* WriteHex(std::uint8_t byte, char* out) {
  std::memcpy(out, &kHexPairs[std::size_t{2} * byte], 2);
  return out + 2;
}

}  // namespace walpost::base
