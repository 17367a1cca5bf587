#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"

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

namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Of the character that begins here; 1 for a byte that begins none.
std::size_t CharacterAt(std::string_view text) {
  std::size_t size = 1;
  while (size < std::min<std::size_t>(text.size(), 4) && IsContinuation(text[size])) {
    ++size;
  }
  return IsUtf8(text.substr(0, size)) ? size : 1;
}

bool IsObeyed(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) {
    return first < 0x20 || first >= 0x7f;  // also a byte that is no character
  }
  return (character >= "\u0080" && character <= "\u009f") || character == "\u061c" ||
         (character >= "\u200e" && character <= "\u200f") ||
         (character >= "\u2028" && character <= "\u202e") ||
         (character >= "\u2066" && character <= "\u2069");
}

std::string ShownCharacter(std::string_view character) {
  std::string shown;
  for (const char c : character) {
    absl::StrAppendFormat(&shown, "\\x%02x", static_cast<unsigned char>(c));
  }
  return shown;
}

std::string Escaped(std::string_view text, std::size_t bytes_max, bool lines) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const std::string_view character = text.substr(0, CharacterAt(text));
    text.remove_prefix(character.size());
    const bool as_it_is = !IsObeyed(character) || (lines && character == "\n");
    const std::string next = as_it_is ? std::string(character) : ShownCharacter(character);
    if (bytes_max > 0 && shown.size() + next.size() > bytes_max) {
      return shown + "...";
    }
    shown += next;
  }
  return shown;
}

}  // namespace

std::string Printable(std::string_view text, std::size_t bytes_max) {
  return Escaped(text, bytes_max, false);
}

std::string PrintableLines(std::string_view text) { return Escaped(text, 0, true); }

std::string Cut(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) {
    return std::string(text);
  }
  // No half of a character, where these are characters.
  std::size_t head = bytes_max / 2;
  std::size_t tail = text.size() - (bytes_max - head);
  for (int i = 0; i < 3 && head > 0 && IsContinuation(text[head]); ++i) {
    --head;
  }
  for (int i = 0; i < 3 && tail < text.size() && IsContinuation(text[tail]); ++i) {
    ++tail;
  }
  return absl::StrFormat("%s ... (%u bytes left out) ... %s", text.substr(0, head), tail - head,
                         text.substr(tail));
}

bool IsLoopbackHost(std::string_view host) {
  // "127.evil.example" is a name.
  const bool number = std::all_of(host.begin(), host.end(),
                                  [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (number && host.rfind("127.", 0) == 0);
}

namespace {

std::string Lower(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

bool MayHoldSecret(std::string_view name) {
  const std::string lower = Lower(name);
  constexpr std::string_view kWords[] = {"pass",
                                         "secret",
                                         "token",
                                         "key",
                                         "cred",
                                         "auth",
                                         "cookie",
                                         "cmd",
                                         "bearer",
                                         "jaas",
                                         "sasl.oauthbearer.config"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

bool PropertyMayHoldSecret(std::string_view name) {
  const std::string lower = Lower(name);
  constexpr std::string_view kPaths[] = {".location", ".path", "_file", ".file"};
  const bool path = std::any_of(std::begin(kPaths), std::end(kPaths), [&](std::string_view end) {
    return lower.ends_with(end) && lower != end;
  });
  return !path && MayHoldSecret(name);
}

std::string HideRuns(std::string_view text, const std::vector<std::string>& secrets) {
  constexpr std::size_t kRunMin = sizeof(std::uint64_t);
  const auto run = [](std::string_view of, std::size_t at) {
    return Load<std::uint64_t>(of.data() + at);
  };
  // Of the text, which is short as a rule: a secret may be a bundle of certificates.
  absl::flat_hash_map<std::uint64_t, bool> found;
  for (std::size_t at = 0; at + kRunMin <= text.size(); ++at) {
    found.emplace(run(text, at), false);
  }
  for (const std::string& secret : secrets) {
    for (std::size_t at = 0; !found.empty() && at + kRunMin <= secret.size(); ++at) {
      if (const auto same = found.find(run(secret, at)); same != found.end()) {
        same->second = true;
      }
    }
  }
  std::vector<bool> hide(text.size());
  for (std::size_t at = 0; at + kRunMin <= text.size(); ++at) {
    if (found.at(run(text, at))) {
      std::fill_n(hide.begin() + static_cast<std::ptrdiff_t>(at), kRunMin, true);
    }
  }
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!hide[at]) {
      shown += text[at];
    } else if (at == 0 || !hide[at - 1]) {
      shown += "***";
    }
  }
  return shown;
}

}  // namespace walpost::base
