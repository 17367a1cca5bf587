#include "config/units.h"

#include <charconv>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

namespace walpost::config {
namespace {

using Unit = std::pair<std::string_view, std::uint64_t>;

constexpr Unit kDurations[] = {
    {"ms", 1}, {"s", 1'000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
constexpr Unit kSizes[] = {{"", 1},
                           {"B", 1},
                           {"KiB", 1ULL << 10},
                           {"MiB", 1ULL << 20},
                           {"GiB", 1ULL << 30},
                           {"kB", 1'000},
                           {"MB", 1'000'000},
                           {"GB", 1'000'000'000}};

// A whole number, then one of `units`.
template <std::size_t N>
bool Parse(std::string_view text, const Unit (&units)[N], std::uint64_t* value) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc()) {
    return false;
  }
  std::string_view unit(result.ptr, static_cast<std::size_t>(end - result.ptr));
  while (!unit.empty() && unit[0] == ' ') {
    unit.remove_prefix(1);
  }
  for (const auto& [name, factor] : units) {
    if (unit == name && number <= std::numeric_limits<std::int64_t>::max() / factor) {
      *value = number * factor;
      return true;
    }
  }
  return false;
}

template <std::size_t N>
std::string Format(std::uint64_t value, const Unit (&units)[N], std::string_view first) {
  std::string best = absl::StrFormat("%u%s", value, first);
  std::uint64_t best_factor = 1;
  for (const auto& [name, factor] : units) {
    if (value != 0 && value % factor == 0 && factor > best_factor) {
      best = absl::StrFormat("%u%s", value / factor, name);
      best_factor = factor;
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text) {
  std::uint64_t value = 0;
  if (!Parse(text, kDurations, &value)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not a duration: write a whole number with ms, s, min, h or d, such as 25s", text));
  }
  return std::chrono::milliseconds(value);
}

absl::StatusOr<std::uint64_t> ParseSize(std::string_view text) {
  std::uint64_t value = 0;
  if (!Parse(text, kSizes, &value)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not a size: write a whole number with KiB, MiB or GiB, such as 16MiB", text));
  }
  return value;
}

std::string FormatDuration(std::chrono::milliseconds duration) {
  return Format(static_cast<std::uint64_t>(duration.count()), kDurations, "ms");
}

std::string FormatSize(std::uint64_t bytes) { return Format(bytes, kSizes, ""); }

}  // namespace walpost::config
