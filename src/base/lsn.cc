#include "base/lsn.h"

#include <charconv>

#include "absl/strings/str_format.h"

namespace walpost::base {
namespace {

bool ParseHalf(std::string_view text, std::uint32_t* value) {
  if (text.empty() || text.size() > 8) {
    return false;
  }
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *value, 16);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

absl::StatusOr<Lsn> Lsn::Parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  std::uint32_t high = 0;
  std::uint32_t low = 0;
  if (slash == std::string_view::npos || !ParseHalf(text.substr(0, slash), &high) ||
      !ParseHalf(text.substr(slash + 1), &low)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("'%s' is not an LSN; expected a form such as 16/B374D848", text));
  }
  return Lsn((std::uint64_t{high} << 32) | low);
}

std::string Lsn::ToString() const {
  return absl::StrFormat("%X/%X", value_ >> 32, value_ & 0xFFFFFFFFU);
}

std::ostream& operator<<(std::ostream& out, Lsn lsn) { return out << lsn.ToString(); }

}  // namespace walpost::base
