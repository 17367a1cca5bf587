#include "observe/repeat_limiter.h"

#include <algorithm>

namespace walpost::observe {

std::optional<std::uint64_t> RepeatLimiter::Take(base::LogEvent event, std::string_view cause,
                                                 base::MonotonicTime now) {
  const auto [found, is_new] = told_.try_emplace({event, std::string(cause)}, Told{now, 0});
  if (is_new) {
    if (told_.size() > kCausesMax) {
      Forget();
    }
    return 0;
  }
  Told& told = found->second;
  if (now < told.at + kEvery) {
    ++told.not_told;
    return std::nullopt;
  }
  told.at = now;
  return std::exchange(told.not_told, 0);
}

// The one that was written longest ago.
void RepeatLimiter::Forget() {
  told_.erase(std::min_element(told_.begin(), told_.end(), [](const auto& a, const auto& b) {
    return a.second.at < b.second.at;
  }));
}

}  // namespace walpost::observe
