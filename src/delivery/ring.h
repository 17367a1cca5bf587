// Ring - a growing ring buffer: push at the back, pop at the front, index from the front, no
// allocation once warm.
// Why: std::deque allocates a block every few entries of our size, on the path of every event.
// Thread: one owner.   Lifetime: references end with the next PushBack.
#pragma once

#include <glog/logging.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace walpost::delivery {

template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }

  std::size_t size() const { return size_; }

  T& operator[](std::size_t index) { return slots_[(first_ + index) & (slots_.size() - 1)]; }

  const T& operator[](std::size_t index) const {
    return slots_[(first_ + index) & (slots_.size() - 1)];
  }

  T& front() { return (*this)[0]; }

  T& back() { return (*this)[size_ - 1]; }

  void PushBack(T value) {
    if (size_ == slots_.size()) {
      Grow();
    }
    ++size_;
    back() = std::move(value);
  }

  void PopFront() {
    DCHECK_GT(size_, 0U);
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  void Grow() {
    std::vector<T> larger(slots_.empty() ? 64 : slots_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i) {
      larger[i] = std::move((*this)[i]);
    }
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;  // size is zero or a power of two
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace walpost::delivery
