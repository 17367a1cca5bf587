// Mutate - small random damage to bytes: bits, bytes, cuts, insertions, repetitions and extremes.
#pragma once

#include <cstddef>
#include <random>
#include <string>

namespace walpost::fuzz {

using Random = std::mt19937_64;

// 0 for a limit of 0.
std::size_t Below(std::size_t limit, Random* random);

// One to four changes. The size grows by a few bytes at most.
void Mutate(std::string* bytes, Random* random);

}  // namespace walpost::fuzz
