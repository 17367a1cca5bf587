#include "envelope/position.h"

#include <charconv>

#include "absl/strings/str_format.h"
#include "base/text.h"

namespace walpost::envelope {
namespace {

// All digits.
template <typename Number>
char* WriteHex(Number number, char* out) {
  for (std::size_t i = sizeof(number); i-- > 0;) {
    out = base::WriteHex(static_cast<std::uint8_t>(number >> 8 * i), out);
  }
  return out;
}

bool ReadHex(std::string_view text, std::uint64_t* value) {
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
      return false;
    }
  }
  return std::from_chars(text.data(), text.data() + text.size(), *value, 16).ec == std::errc();
}

}  // namespace

void Position::Format(char* text) const {
  text = WriteHex(system_identifier, text);
  *text++ = '-';
  text = WriteHex(timeline, text);
  *text++ = '-';
  text = WriteHex(commit_lsn.value(), text);
  *text++ = '-';
  WriteHex(ordinal, text);
}

std::string Position::ToString() const {
  std::string text(kTextSize, '\0');
  Format(text.data());
  return text;
}

absl::StatusOr<Position> Position::Parse(std::string_view text) {
  std::uint64_t parts[4] = {};
  const bool shape =
      text.size() == kTextSize && text[16] == '-' && text[25] == '-' && text[42] == '-';
  if (!shape || !ReadHex(text.substr(0, 16), &parts[0]) ||
      !ReadHex(text.substr(17, 8), &parts[1]) || !ReadHex(text.substr(26, 16), &parts[2]) ||
      !ReadHex(text.substr(43, 8), &parts[3])) {
    return absl::InvalidArgumentError(absl::StrFormat("'%s' is not a walpost-position", text));
  }
  return Position{parts[0], static_cast<std::uint32_t>(parts[1]), base::Lsn(parts[2]),
                  static_cast<std::uint32_t>(parts[3])};
}

}  // namespace walpost::envelope
