// SlotHold - keeps a slot in use, so that nobody can begin to stream from it or move it. Takes nothing out
// of it.
// Why: an operator's decision about a slot consists of several writes, and `run` must not begin to stream
//   between two of them, or between a look at the slot and what is recorded by it.
// Thread: one owner; blocking.   Lifetime: the slot is free again when it ends.
// Units/limits: the end waits 2 s at most for the server to let go.
// Errors: kFailedPrecondition (somebody else uses it, or it cannot be streamed from), kUnavailable.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "postgres/connect.h"
#include "postgres/keep_alive.h"

namespace walpost::postgres {

class SlotHold {
 public:
  static absl::StatusOr<SlotHold> Take(const ConnectOptions& options);
  ~SlotHold();
  SlotHold(SlotHold&&) = default;
  SlotHold& operator=(SlotHold&&) = delete;

 private:
  explicit SlotHold(std::unique_ptr<ReplicationStream> stream)
      : stream_(std::move(stream)), keep_alive_(std::make_unique<KeepAlive>(stream_.get())) {}

  std::unique_ptr<ReplicationStream> stream_;
  std::unique_ptr<KeepAlive> keep_alive_;
};

}  // namespace walpost::postgres
