// Text - whether bytes are text of a kind, or equal but for case; bytes as hexadecimal digits; JSON
// as text.
// Why: each event's texts are looked at several times, and nearly all are ASCII: eight bytes at a
// time.
// Thread: free functions.
// Source: RFC 3629 (UTF-8).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace walpost::base {

// No surrogates, nothing longer than it must be, nothing above U+10FFFF: what a protobuf string may
// hold.
bool IsUtf8(std::string_view text);

// Whether it stands in JSON as it is: nothing below a space, no quote, no backslash. Not whether it
// is UTF-8.
bool IsPlainInJson(std::string_view text);

// JSON as text, on lines of its own with an `indent`. What is not UTF-8 becomes U+FFFD: without
// that, text such as a database's name would end walpost.
template <typename Json>
std::string JsonText(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

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

// Printable - foreign text for people: without what a terminal obeys, and no longer than a line
// bears.
// Why: who writes events, names tables or answers over the network decides about text that an
//   operator reads in a terminal. It must not move the cursor, change what stands there, or fill a
//   disk.
// Thread: free functions.
// Units/limits: bytes.
// Source: ECMA-48 (control characters), Unicode's bidirectional formatting characters.

// Of one text of somebody else's, such as an event's id.
inline constexpr std::size_t kShownBytesMax = 1'000;
// Of a whole message, which may quote several.
inline constexpr std::size_t kMessageBytesMax = 4'000;

// As \xNN: control characters (C0, DEL, C1), what changes the order of characters on the line, and
// bytes that are no UTF-8. All else is as it was. A result of more than `bytes_max` bytes (0 = no
// limit) ends before the character that exceeds them, and "..." follows.
std::string Printable(std::string_view text, std::size_t bytes_max = 0);

// The same for text of several lines: line feeds stay.
std::string PrintableLines(std::string_view text);

// The text, or its beginning and its end with the number of bytes left out between them: what was
// quoted in a message stands in the middle of what it says.
std::string Cut(std::string_view text, std::size_t bytes_max = kShownBytesMax);

// IsLoopbackHost - does this name of a host lead to this machine, whoever resolves it?
// Why here: postgres, kafka, registry and config ask, and none of them may use another for it.
// Thread: any.

// "localhost", 127.0.0.0/8 and ::1, the latter with or without brackets. Any other name may lead
// anywhere.
bool IsLoopbackHost(std::string_view host);

// What is shown as ***: settings and headers of some names, and pieces of secrets in messages.
// Why: what may be shown is decided by a rule: a list of names would miss the next one.
// Thread: any.

// By its words, in any case: password, secret, token, key, credential, ...
bool MayHoldSecret(std::string_view name);

// Of a property of Kafka's or Debezium's: as MayHoldSecret, but one whose name ends as that of a
// path does (.location, .path, _file, .file) holds none.
bool PropertyMayHoldSecret(std::string_view name);

// `text` with *** in place of each run of 8 bytes or more that one of `secrets` has, too: a library
// may cut what it quotes, or quote a part. All at once: one may be a part of another.
std::string HideRuns(std::string_view text, const std::vector<std::string>& secrets);

// WideHash - 128 bits of one or two texts, so that no two are taken for one by chance.
// Why: what is kept of each of many texts of any size must be small, and 64 bits may be the same
//   for two. More calls alone give no more bits: of a text of more than 16 bytes Abseil makes one
//   hash of 64 bits, and the rest is a function of that, whatever is hashed before or behind it. So
//   the second half is of another text: the same one, cut behind its first byte. They are
//   absl::string_view because Abseil may hash another type as the standard library does: without a
//   seed, so that anybody can make two texts with one hash.
// Thread: free functions.
// Limits: the same only within one process.
// Source: Abseil, hash/internal/hash.h, CombineContiguousImpl and HashSelect.
using WideHash = std::pair<std::uint64_t, std::uint64_t>;

inline WideHash WideHashOf(std::string_view a, std::string_view b = {}) {
  const absl::string_view first(a.data(), a.size());
  const absl::string_view second(b.data(), b.size());
  const std::size_t first_cut = first.empty() ? 0 : 1;
  const std::size_t second_cut = second.empty() ? 0 : 1;
  return {absl::HashOf(first, second),
          absl::HashOf(first.substr(0, first_cut), first.substr(first_cut),
                       second.substr(0, second_cut), second.substr(second_cut))};
}

}  // namespace walpost::base
