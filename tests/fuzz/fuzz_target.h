// A fuzz target: one function that takes any bytes, in memory and without I/O, and ends the process
// when something is wrong with what the code under test makes of them.
// Why: the names are libFuzzer's, so that the same source runs under it (WALPOST_LIBFUZZER) and,
//   with every compiler and in every test run, under replay_main.cc.
// Thread: one.   Limits: a target keeps nothing from one input to the next, so that an input alone
//   repeats what it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

// Changes `data` in place and returns the new size, at most `size_max`. Only targets whose input
// has a frame around it that blind changes would destroy define it.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned int seed)
    __attribute__((weak));

namespace walpost::fuzz {

// Inputs to begin with that stand elsewhere in the repository; the others are in corpus/<target>.
std::vector<std::string> MoreInputs();

}  // namespace walpost::fuzz
