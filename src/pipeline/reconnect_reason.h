// ReconnectReason - why a connection to the source ended, or was not made, and another is tried.
#pragma once

#include <string_view>

#include "base/stream_end.h"

namespace walpost::pipeline {

enum class ReconnectReason {
  kConnectFailed,   // an attempt failed
  kLoginRejected,   // after it has streamed once: passwords are rotated
  kSlotInUse,       // another instance streams
  kLost,            // the connection
  kServerError,     // an error of the server ended the stream
  kServerStopping,  // left, so that the server can shut down, or ended by it
  kTakenOver,       // another instance went on meanwhile: everything in memory was given up
  kPlanned,         // to run preflight again
  kPromoted,        // a standby that is read is on another timeline now
};

inline constexpr ReconnectReason kAllReconnectReasons[] = {
    ReconnectReason::kConnectFailed, ReconnectReason::kLoginRejected,
    ReconnectReason::kSlotInUse,     ReconnectReason::kLost,
    ReconnectReason::kServerError,   ReconnectReason::kServerStopping,
    ReconnectReason::kTakenOver,     ReconnectReason::kPlanned,
    ReconnectReason::kPromoted};

// snake_case, as in the metrics.
std::string_view ReconnectReasonName(ReconnectReason reason);

// Of an end that is no halt; `connecting`: of an attempt.
ReconnectReason ReconnectReasonOf(const base::StreamEnd& end, bool connecting);

}  // namespace walpost::pipeline
