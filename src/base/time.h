// Now, and conversions between PostgreSQL's and Unix's clocks.
// Why: the core never reads a clock; whoever calls it passes Now. Timers use `mono` only; `wall` is
//   for what is shown and for delays against server times, and may jump.
// Units: PostgreSQL counts microseconds since 2000-01-01 UTC.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace walpost::base {

using MonotonicTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

struct Now {
  MonotonicTime mono;
  WallTime wall;
};

inline constexpr std::int64_t kPostgresEpochUnixMicros = 946'684'800'000'000;

constexpr WallTime FromPostgresMicros(std::int64_t micros) {
  // Wraps instead of overflowing: a hostile server may send any value, and times are only shown.
  return WallTime(std::chrono::microseconds(static_cast<std::int64_t>(
      static_cast<std::uint64_t>(micros) + static_cast<std::uint64_t>(kPostgresEpochUnixMicros))));
}

// The exact inverse, wrapping as well.
constexpr std::int64_t ToPostgresMicros(WallTime time) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(time.time_since_epoch().count()) -
                                   static_cast<std::uint64_t>(kPostgresEpochUnixMicros));
}

// What protobuf, RFC 3339 and most languages take.
inline constexpr WallTime kFirstTime{std::chrono::seconds(-62'135'596'800)};   // 0001-01-01
inline constexpr WallTime kEndOfTimes{std::chrono::seconds(253'402'300'800)};  // 10000-01-01

constexpr bool IsWithinYears(WallTime time) { return time >= kFirstTime && time < kEndOfTimes; }

constexpr WallTime ClampToYears(WallTime time) {
  return std::clamp(time, kFirstTime, kEndOfTimes - std::chrono::microseconds(1));
}

// Backoff - exponential back-off with full jitter: the n-th delay is uniform in [minimum,
// min(maximum, initial * 2^n)].
// Why: many instances that lost the same server must not come back in step.
// Thread: a value, no clock; the random sequence comes from the seed alone, so a run can be
//   replayed.
// Source: "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), the full-jitter variant.
struct BackoffOptions {
  std::chrono::milliseconds initial{100};
  std::chrono::milliseconds maximum{30'000};
  std::chrono::milliseconds minimum{10};
};

class Backoff {
 public:
  Backoff(BackoffOptions options, std::uint64_t seed) : options_(options), random_(seed) {}

  // The delay before the next try, and one step further. `at_least` raises the lower bound of this
  // one delay.
  std::chrono::milliseconds Next(std::chrono::milliseconds at_least = {}) {
    const int doublings = std::min(attempts_, 30);
    ++attempts_;
    const auto ceiling =
        std::min(options_.maximum, options_.initial * (std::int64_t{1} << doublings));
    const auto floor = std::max(options_.minimum, at_least);
    std::uniform_int_distribution<std::int64_t> delay(floor.count(),
                                                      std::max(floor, ceiling).count());
    return std::chrono::milliseconds(delay(random_));
  }

  void Reset() { attempts_ = 0; }

  int attempts() const { return attempts_; }

 private:
  const BackoffOptions options_;
  std::mt19937_64 random_;
  int attempts_ = 0;
};

}  // namespace walpost::base
