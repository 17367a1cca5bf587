#include "base/text.h"

#include <algorithm>

namespace walpost::base {
namespace {

constexpr std::uint64_t kEach = 0x0101010101010101;  // times a byte: that byte in all eight
constexpr std::uint64_t kHighBits = 0x80 * kEach;

unsigned char ByteAt(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

template <typename Word>
Word Load(const char* bytes) {
  Word word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// What `flags` finds in all of it; the last word of eight bytes overlaps the one before.
template <typename Flags>
std::uint64_t OfAllWords(std::string_view text, Flags flags) {
  const char* const last = text.data() + text.size() - sizeof(std::uint64_t);
  std::uint64_t found = flags(Load<std::uint64_t>(last));
  for (const char* at = text.data(); at < last; at += sizeof(std::uint64_t)) {
    found |= flags(Load<std::uint64_t>(at));
  }
  return found;
}

bool IsAscii(std::string_view text) {
  if (text.size() >= sizeof(std::uint64_t)) {
    return (OfAllWords(text, [](std::uint64_t word) { return word; }) & kHighBits) == 0;
  }
  if (text.size() >= sizeof(std::uint32_t)) {
    const char* const last = text.data() + text.size() - sizeof(std::uint32_t);
    return ((Load<std::uint32_t>(text.data()) | Load<std::uint32_t>(last)) & kHighBits) == 0;
  }
  unsigned all = 0;
  for (const char c : text) {
    all |= static_cast<unsigned char>(c);
  }
  return all < 0x80;
}

// Not zero when one of the bytes is below `limit`, which is 128 at most. May be wrong about bytes
// behind the first such one, and is not about all together.
std::uint64_t Below(std::uint64_t word, std::uint64_t limit) {
  return (word - limit * kEach) & ~word & kHighBits;
}

// Bytes behind the first one of a character, and what the second may be; 0 = no first byte.
struct Sequence {
  std::size_t more = 0;
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

Sequence SequenceOf(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) {
    return {1};
  }
  if (first >= 0xE0 && first <= 0xEF) {
    return {2, static_cast<unsigned char>(first == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(first == 0xED ? 0x9F : 0xBF)};
  }
  if (first >= 0xF0 && first <= 0xF4) {
    return {3, static_cast<unsigned char>(first == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(first == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

}  // namespace

bool IsUtf8(std::string_view text) {
  if (IsAscii(text)) {
    return true;
  }
  std::size_t i = 0;
  while (i < text.size()) {
    if (ByteAt(text, i) < 0x80) {
      ++i;
      continue;
    }
    const Sequence sequence = SequenceOf(ByteAt(text, i));
    if (sequence.more == 0 || text.size() - i <= sequence.more ||
        ByteAt(text, i + 1) < sequence.second_min || ByteAt(text, i + 1) > sequence.second_max) {
      return false;
    }
    for (std::size_t j = 2; j <= sequence.more; ++j) {
      if ((ByteAt(text, i + j) & 0xC0) != 0x80) {
        return false;
      }
    }
    i += sequence.more + 1;
  }
  return true;
}

bool IsPlainInJson(std::string_view text) {
  if (text.size() >= sizeof(std::uint64_t)) {
    return OfAllWords(text, [](std::uint64_t word) {
             return Below(word, ' ') | Below(word ^ '"' * kEach, 1) | Below(word ^ '\\' * kEach, 1);
           }) == 0;
  }
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\\';
  });
}

bool EqualsIgnoringCase(std::string_view one, std::string_view other) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [lower](char a, char b) { return lower(a) == lower(b); });
}

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  return EqualsIgnoringCase(text.substr(0, prefix.size()), prefix);
}

}  // namespace walpost::base
