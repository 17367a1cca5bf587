#include "observe/repeat_limiter.h"

#include <algorithm>

namespace walpost::observe {

std::optional<std::uint64_t> RepeatLimiter::Take(base::LogEvent event, std::string_view cause,
                                                 base::MonotonicTime now) {
  const auto [found, is_new] = told_.try_emplace({event, std::string(cause)}, Told{now, now, 0});
  Told& told = found->second;
  // Each line moves `all_again` by one interval; so many of them may lie ahead.
  if (told.all_again > now + (kAtOnce - 1) * kEvery) {
    ++told.not_told;
    return std::nullopt;
  }
  told.at = now;
  told.all_again = std::max(told.all_again, now) + kEvery;
  const std::uint64_t not_told = std::exchange(told.not_told, 0);
  if (is_new && told_.size() > kCausesMax) {
    Forget();
  }
  return not_told;
}

// The one that was written longest ago.
void RepeatLimiter::Forget() {
  told_.erase(std::min_element(told_.begin(), told_.end(), [](const auto& a, const auto& b) {
    return a.second.at < b.second.at;
  }));
}

}  // namespace walpost::observe
