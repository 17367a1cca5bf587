#include "unit/envelope/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> allocation_count{0};

}  // namespace

namespace walpost::envelope {

std::uint64_t AllocationCount() { return allocation_count.load(); }

}  // namespace walpost::envelope

// The standard library's other forms call these.
void* operator new(std::size_t size) {
  allocation_count.fetch_add(1);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    std::abort();
  }
  return memory;
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  allocation_count.fetch_add(1);
  const auto boundary = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(boundary, (size + boundary - 1) / boundary * boundary);
  if (memory == nullptr) {
    std::abort();
  }
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }

void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
