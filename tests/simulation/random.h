// Random - a small, fast generator whose whole state is the seed: the same history on every
// machine.
// Why: std::uniform_int_distribution is not the same everywhere, and a mt19937 costs more to seed
//   than a short history takes.
// Thread: a value.
// Source: Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (SplitMix64).
#pragma once

#include <cstdint>

namespace walpost::simulation {

class Random {
 public:
  // Streams of one seed are independent: a fault that is switched off leaves what is drawn from
  // other streams as it was.
  Random(std::uint64_t seed, std::uint64_t stream)
      : state_(seed * 0x9E3779B97F4A7C15U + (stream + 1) * 0xD1B54A32D192ED03U) {
    Next();
  }

  std::uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  // 0 when `bound` is 0.
  std::uint64_t Below(std::uint64_t bound) { return bound == 0 ? 0 : Next() % bound; }

  std::uint64_t Between(std::uint64_t low, std::uint64_t high) {
    return low + Below(high - low + 1);
  }

  bool Chance(unsigned per_thousand) { return Next() % 1000 < per_thousand; }

 private:
  std::uint64_t state_;
};

}  // namespace walpost::simulation
