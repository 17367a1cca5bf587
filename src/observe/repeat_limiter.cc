#include "observe/repeat_limiter.h"

#include <algorithm>

namespace walpost::observe {

std::optional<std::uint64_t> RepeatLimiter::Take(base::LogEvent event, std::string_view cause,
                                                 base::MonotonicTime now) {
  const auto [found, is_new] =
      reported_.try_emplace({event, std::string(cause)}, Reported{now, now, 0});
  Reported& reported = found->second;
  // Each line moves `all_again` by one interval; so many of them may lie ahead.
  if (reported.all_again > now + (kAtOnce - 1) * kEvery) {
    ++reported.not_reported;
    return std::nullopt;
  }
  reported.at = now;
  reported.all_again = std::max(reported.all_again, now) + kEvery;
  const std::uint64_t not_reported = std::exchange(reported.not_reported, 0);
  if (is_new && reported_.size() > kCausesMax) {
    Forget();
  }
  return not_reported;
}

// The one that was written longest ago.
void RepeatLimiter::Forget() {
  reported_.erase(
      std::min_element(reported_.begin(), reported_.end(),
                       [](const auto& a, const auto& b) { return a.second.at < b.second.at; }));
}

}  // namespace walpost::observe
