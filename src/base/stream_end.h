// StreamEnd - why a replication stream, or an attempt to open one, ended.
// Why here: postgres classifies, pipeline decides what follows.
// Thread: a value.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/state.h"

namespace walpost::base {

struct StreamEnd {
  enum class Kind {
    kFinished,     // the server said CommandComplete: it is stopping, or answered our CopyDone
    kLost,         // connection trouble: reconnect with back-off
    kSlotInUse,    // 55006: state standby, retry with back-off
    kOperator,     // only an operator can fix it: `reason`
    kServerError,  // an ErrorResponse while streaming; the same one at the same position again is
                   // poison_wal
  };

  Kind kind = Kind::kLost;
  HaltReason reason = HaltReason::kProtocolError;  // with kOperator
  absl::Status status;                             // one line: what, where, what to do
  std::string sqlstate;                            // when the server gave one
  std::string context;                             // its CONTEXT field, which may name an LSN
  // With kServerError: a type in a published table has none, or an element of it.
  bool no_binary_form = false;
};

}  // namespace walpost::base
