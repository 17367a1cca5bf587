// Runner - histories in processes of their own, so that a failed CHECK or a hang of the core is a
// result like any other.
// Thread: one owner.
#pragma once

#include <cstdint>
#include <string>

#include "plan.h"

namespace walpost::simulation {

constexpr unsigned kJobsMax = 256;

struct Outcome {
  bool failed = false;
  std::uint64_t seed = 0;       // of the history that failed
  std::uint64_t histories = 0;  // played
  std::uint64_t events = 0;
  std::string what;
};

// Plays seeds first..first+count-1 on `jobs` processes, until one fails. `bug` is switched on in
// them; 0 = none.
Outcome Play(std::uint64_t first, std::uint64_t count, unsigned jobs, int bug);

// Plays one, in a process of its own.
Outcome PlayOne(std::uint64_t seed, const Cuts& cuts, bool trace, int bug);

// The most that can be left out so that it still fails.
Cuts Shrink(std::uint64_t seed, Cuts cuts, int bug);

}  // namespace walpost::simulation
