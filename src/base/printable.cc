#include "base/printable.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/text.h"

namespace walpost::base {
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

}  // namespace walpost::base
