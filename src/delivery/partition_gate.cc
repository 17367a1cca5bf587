#include "delivery/partition_gate.h"

#include <glog/logging.h>

namespace walpost::delivery {

void PartitionGate::OnSent(base::MonotonicTime now, std::chrono::milliseconds known_for) {
  CHECK(MaySend());
  if (outstanding_++ == 0) {
    alone_ = !known_ || now - known_at_ >= known_for;
  }
}

bool PartitionGate::OnAcknowledged(base::MonotonicTime now, std::int64_t offset) {
  CHECK_GT(outstanding_, 0U);
  --outstanding_;
  alone_ = false;
  known_ = true;
  known_at_ = now;
  if (offset < 0) {
    return false;
  }
  const bool went_back = offset < next_offset_;
  next_offset_ = offset + 1;
  return went_back;
}

void PartitionGate::OnFailed() {
  CHECK_GT(outstanding_, 0U);
  --outstanding_;
}

void PartitionGate::OnMadeAnew() {
  known_ = false;
  alone_ = true;
}

}  // namespace walpost::delivery
