// RepeatLimiter - decides which lines of something that goes on and on are written.
// Why: an outage repeats itself for hours; its first line must be there at once, also when it follows
//   another one closely, and the others must be seen to be there without filling a disk.
// Thread: one owner.   Lifetime: keeps copies.
// Units/limits: of each event and cause kAtOnce lines, and one more for each kEvery since;
//   kCausesMax of them are remembered, and a forgotten one is only written more often.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/log_event.h"
#include "base/time.h"

namespace walpost::observe {

class RepeatLimiter {
 public:
  static constexpr std::chrono::seconds kEvery{10};
  static constexpr int kAtOnce = 3;
  static constexpr std::size_t kCausesMax = 256;

  // Nothing: leave this line out. Else write it; so many were left out since the last one.
  std::optional<std::uint64_t> Take(base::LogEvent event, std::string_view cause,
                                    base::MonotonicTime now);

 private:
  struct Reported {
    base::MonotonicTime at;
    base::MonotonicTime all_again;  // when kAtOnce may be written once more
    std::uint64_t not_reported = 0;
  };

  void Forget();

  std::map<std::pair<base::LogEvent, std::string>, Reported> reported_;
};

}  // namespace walpost::observe
