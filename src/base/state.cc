#include "base/state.h"

namespace walpost::base {

std::string_view StateName(State state) {
  switch (state) {
    case State::kStarting:
      return "starting";
    case State::kStandby:
      return "standby";
    case State::kStreaming:
      return "streaming";
    case State::kBackpressured:
      return "backpressured";
    case State::kReconnecting:
      return "reconnecting";
    case State::kDraining:
      return "draining";
    case State::kHalted:
      return "halted";
  }
  return "unknown";
}

std::string_view HaltReasonName(HaltReason reason) {
  switch (reason) {
    case HaltReason::kSlotMissing:
      return "slot_missing";
    case HaltReason::kSlotInvalidated:
      return "slot_invalidated";
    case HaltReason::kSlotMoved:
      return "slot_moved";
    case HaltReason::kSlotForeign:
      return "slot_foreign";
    case HaltReason::kClusterChanged:
      return "cluster_changed";
    case HaltReason::kTimelineChanged:
      return "timeline_changed";
    case HaltReason::kPublicationMissing:
      return "publication_missing";
    case HaltReason::kTableReplaced:
      return "table_replaced";
    case HaltReason::kSchemaMismatch:
      return "schema_mismatch";
    case HaltReason::kUndeliverableEvent:
      return "undeliverable_event";
    case HaltReason::kDeadLetterFailed:
      return "dead_letter_failed";
    case HaltReason::kPoisonWal:
      return "poison_wal";
    case HaltReason::kProtocolError:
      return "protocol_error";
    case HaltReason::kAuthFailed:
      return "auth_failed";
    case HaltReason::kProgressUnreadable:
      return "progress_unreadable";
    case HaltReason::kInitIncomplete:
      return "init_incomplete";
  }
  return "unknown";
}

int HaltExitCode(HaltReason reason) {
  switch (reason) {
    case HaltReason::kAuthFailed:
      return 77;
    case HaltReason::kProtocolError:
      return 70;
    default:
      return 78;
  }
}

}  // namespace walpost::base
