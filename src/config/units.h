// Units - "16MiB", "10min": sizes and durations as people write them.
// Errors: kInvalidArgument says what is accepted.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace walpost::config {

// A whole number with ms, s, min, h or d.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text);

// A whole number of bytes, or with B, KiB, MiB, GiB, kB, MB, GB.
absl::StatusOr<std::uint64_t> ParseSize(std::string_view text);

// The shortest exact form of each.
std::string FormatDuration(std::chrono::milliseconds duration);
std::string FormatSize(std::uint64_t bytes);

}  // namespace walpost::config
