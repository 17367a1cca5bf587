#include "pipeline/reconnect_reason.h"

namespace walpost::pipeline {

using base::StreamEnd;

std::string_view ReconnectReasonName(ReconnectReason reason) {
  switch (reason) {
    case ReconnectReason::kConnectFailed:
      return "connect_failed";
    case ReconnectReason::kLoginRejected:
      return "login_rejected";
    case ReconnectReason::kSlotInUse:
      return "slot_in_use";
    case ReconnectReason::kLost:
      return "lost";
    case ReconnectReason::kServerError:
      return "server_error";
    case ReconnectReason::kServerStopping:
      return "server_stopping";
    case ReconnectReason::kTakenOver:
      return "taken_over";
    case ReconnectReason::kPlanned:
      return "planned";
    case ReconnectReason::kPromoted:
      return "promoted";
  }
  return "unknown";
}

ReconnectReason ReconnectReasonOf(const StreamEnd& end, bool connecting) {
  switch (end.kind) {
    case StreamEnd::Kind::kSlotInUse:
      return ReconnectReason::kSlotInUse;
    case StreamEnd::Kind::kOperator:
      return ReconnectReason::kLoginRejected;
    case StreamEnd::Kind::kFinished:
      return ReconnectReason::kServerStopping;
    case StreamEnd::Kind::kServerError:
      return ReconnectReason::kServerError;
    case StreamEnd::Kind::kLost:
      break;
  }
  return connecting ? ReconnectReason::kConnectFailed : ReconnectReason::kLost;
}

}  // namespace walpost::pipeline
