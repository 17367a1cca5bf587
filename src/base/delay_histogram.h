// DelayHistogram - counts of delays in buckets with fixed upper bounds, the last one +Inf.
// Why here: pipeline fills it per event, observe exposes it.
// Thread: a value.
// Units: seconds; a negative delay (clocks differ) counts as zero.
#pragma once

#include <array>
#include <cstdint>

namespace walpost::base {

struct DelayHistogram {
  static constexpr std::array<double, 16> kUpperBoundsSeconds = {
      0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120, 600};

  std::array<std::uint64_t, kUpperBoundsSeconds.size() + 1> counts{};
  double sum_seconds = 0;
  std::size_t newest = 0;  // bucket of the newest delay

  void Add(double seconds);
  std::uint64_t Total() const;

  // Upper bound of the bucket that holds the quantile; 0 when empty.
  double Quantile(double quantile) const;
};

}  // namespace walpost::base
