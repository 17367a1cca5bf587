#include "base/figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace walpost::base {

void DelayHistogram::Add(double seconds) {
  const double delay = std::max(seconds, 0.0);
  // Delays of one batch are much the same, so the bucket mostly is, too.
  const bool same =
      (newest == kUpperBoundsSeconds.size() || delay <= kUpperBoundsSeconds[newest]) &&
      (newest == 0 || delay > kUpperBoundsSeconds[newest - 1]);
  if (!same) {
    const auto bucket =
        std::lower_bound(kUpperBoundsSeconds.begin(), kUpperBoundsSeconds.end(), delay);
    newest = static_cast<std::size_t>(bucket - kUpperBoundsSeconds.begin());
  }
  ++counts[newest];
  sum_seconds += delay;
}

std::uint64_t DelayHistogram::Total() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

double DelayHistogram::Quantile(double quantile) const {
  const std::uint64_t total = Total();
  if (total == 0) {
    return 0;
  }
  const auto rank = static_cast<std::uint64_t>(std::ceil(quantile * static_cast<double>(total)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kUpperBoundsSeconds.size(); ++i) {
    seen += counts[i];
    if (seen >= std::max<std::uint64_t>(rank, 1)) {
      return kUpperBoundsSeconds[i];
    }
  }
  return kUpperBoundsSeconds.back();
}

}  // namespace walpost::base
