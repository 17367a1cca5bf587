// Backoff - exponential back-off with full jitter: the n-th delay is uniform in [minimum,
// min(maximum, initial * 2^n)].
// Why: many instances that lost the same server must not come back in step.
// Thread: a value, no clock; the random sequence comes from the seed alone, so a run can be
//   replayed.
// Source: "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), the full-jitter variant.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>

namespace walpost::base {

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
  std::chrono::milliseconds Next(std::chrono::milliseconds at_least = std::chrono::milliseconds(0));

  void Reset() { attempts_ = 0; }

  int attempts() const { return attempts_; }

 private:
  const BackoffOptions options_;
  std::mt19937_64 random_;
  int attempts_ = 0;
};

}  // namespace walpost::base
