// State, HaltReason - what a pipeline is doing and why it stopped; one pair of enums for log,
// metrics, /status and systemd, so that an operator meets the same word everywhere.
// Why here: pipeline decides them, observe shows them, postgres and operations name reasons; none
//   may use another. Every HaltReason is a heading of docs/runbook.md with the same spelling.
#pragma once

#include <optional>
#include <string_view>

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

}  // namespace walpost::base
