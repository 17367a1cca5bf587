// SlotHold - keeps a slot in use, so that nobody can begin to stream from it or move it. Takes nothing out
// of it.
// Why: an operator's decision about a slot consists of several writes, and `run` must not begin to stream
//   between two of them, or between a look at the slot and what is recorded by it.
// Thread: one owner; blocking.   Lifetime: the slot is free again when it ends.
// Units/limits: the end waits 2 s at most for the server to let go.
// Errors: kFailedPrecondition (somebody else uses it, or it cannot be streamed from), kUnavailable.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/connect.h"
#include "postgres/keep_alive.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

class SlotHold {
 public:
  static absl::StatusOr<SlotHold> Take(const ConnectOptions& options);

  // Whether it still has the slot, by `connection`: a server may have ended it. Asked in the transaction
  // that writes, before its commit. kFailedPrecondition: it has not.
  absl::Status Check(SqlConnection* connection) const;

  ~SlotHold();
  SlotHold(SlotHold&&) = default;
  SlotHold& operator=(SlotHold&&) = delete;

 private:
  SlotHold(std::string slot, int pid, std::unique_ptr<ReplicationStream> stream,
           std::unique_ptr<Pinger> pinger)
      : slot_(std::move(slot)),
        pid_(pid),
        stream_(std::move(stream)),
        pinger_(std::move(pinger)),
        keep_alive_(std::make_unique<KeepAlive>(stream_.get(), pinger_.get())) {}

  std::string slot_;
  int pid_;  // of the server's process
  std::unique_ptr<ReplicationStream> stream_;
  std::unique_ptr<Pinger> pinger_;
  std::unique_ptr<KeepAlive> keep_alive_;
};

}  // namespace walpost::postgres
