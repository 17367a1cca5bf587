// SizeHistogram - counts of sizes in buckets with fixed upper bounds, the last one +Inf.
// Why here: pipeline fills it, observe exposes it.
// Thread: a value.
#pragma once

#include <array>
#include <cstdint>

namespace walpost::base {

struct SizeHistogram {
  static constexpr std::array<std::uint64_t, 12> kUpperBounds = {
      1, 2, 5, 10, 20, 50, 100, 500, 1'000, 10'000, 100'000, 1'000'000};

  std::array<std::uint64_t, kUpperBounds.size() + 1> counts{};
  std::uint64_t sum = 0;

  // Small sizes are the most, so they are found first.
  void Add(std::uint64_t size) {
    std::size_t bucket = 0;
    while (bucket < kUpperBounds.size() && size > kUpperBounds[bucket]) {
      ++bucket;
    }
    ++counts[bucket];
    sum += size;
  }
};

}  // namespace walpost::base
