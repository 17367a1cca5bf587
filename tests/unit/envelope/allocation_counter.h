// AllocationCount - how often this program has called operator new.
// Why: linked into one test program only, where it replaces operator new.
#pragma once

#include <cstdint>

namespace walpost::envelope {

std::uint64_t AllocationCount();

}  // namespace walpost::envelope
