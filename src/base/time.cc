#include "base/time.h"

#include <algorithm>

namespace walpost::base {

std::chrono::milliseconds Backoff::Next(std::chrono::milliseconds at_least) {
  const int doublings = std::min(attempts_, 30);
  ++attempts_;
  const std::int64_t ceiling =
      std::min(options_.maximum.count(), options_.initial.count() << doublings);
  const std::int64_t floor = std::max(options_.minimum.count(), at_least.count());
  std::uniform_int_distribution<std::int64_t> delay(floor, std::max(floor, ceiling));
  return std::chrono::milliseconds(delay(random_));
}

}  // namespace walpost::base
