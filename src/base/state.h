// State, HaltReason - what a pipeline is doing and why it stopped; one pair of enums for log,
// metrics, /status and systemd, so that an operator meets the same word everywhere.
// Why here: pipeline decides them, observe shows them, postgres and operations name reasons; none
//   may use another. Every HaltReason is a heading of docs/runbook.md with the same spelling.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace walpost::base {

enum class State {
  kStarting,
  kStandby,
  kStreaming,
  kBackpressured,
  kReconnecting,
  kDraining,
  kHalted
};

inline constexpr State kAllStates[] = {
    State::kStarting,     State::kStandby,  State::kStreaming, State::kBackpressured,
    State::kReconnecting, State::kDraining, State::kHalted};

enum class HaltReason {
  kSlotMissing,
  kSlotInvalidated,
  kSlotMoved,
  kSlotForeign,
  kClusterChanged,
  kTimelineChanged,
  kPublicationMissing,
  kTableReplaced,
  kSchemaMismatch,
  kUndeliverableEvent,
  kDeadLetterFailed,
  kPoisonWal,
  kProtocolError,
  kAuthFailed,
  kProgressUnreadable,
  kInitIncomplete,
};

inline constexpr HaltReason kAllHaltReasons[] = {
    HaltReason::kSlotMissing,        HaltReason::kSlotInvalidated,  HaltReason::kSlotMoved,
    HaltReason::kSlotForeign,        HaltReason::kClusterChanged,   HaltReason::kTimelineChanged,
    HaltReason::kPublicationMissing, HaltReason::kTableReplaced,    HaltReason::kSchemaMismatch,
    HaltReason::kUndeliverableEvent, HaltReason::kDeadLetterFailed, HaltReason::kPoisonWal,
    HaltReason::kProtocolError,      HaltReason::kAuthFailed,       HaltReason::kProgressUnreadable,
    HaltReason::kInitIncomplete};

// snake_case, as shown to users: "streaming", "slot_missing".
std::string_view StateName(State state);
std::string_view HaltReasonName(HaltReason reason);

// The sysexits code `run` ends with when delivery.on_halt is `exit`: 77 for auth_failed, 70 for
// protocol_error, 78 for all others.
int HaltExitCode(HaltReason reason);

// StreamEnd - why a replication stream, or an attempt to open one, ended.
// Why here: postgres classifies, pipeline decides what follows.
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
