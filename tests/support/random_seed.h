// RandomSeed - the seed of a randomised test: WALPOST_SEED, or a fresh one.
// Why: printed before the test begins, so that it is known also when the test crashes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace walpost::testing {

inline std::uint64_t RandomSeed() {
  const char* given = std::getenv("WALPOST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "WALPOST_SEED=" << seed << '\n' << std::flush;
  return seed;
}

}  // namespace walpost::testing
