// Frames of the replication COPY stream: what the server sends ('w', 'k') and the status we answer
// with ('r').
// Why: pure bytes <-> structs, so that the simulator speaks to the pipeline in the server's own
//   words.
// Thread: free functions.   Lifetime: XLogData::payload points into the frame given.
// Errors: kDataLoss for an unknown tag, a short or a long frame; the message names tag and sizes,
//   never row values.
// Source: PostgreSQL manual, "Streaming Replication Protocol".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "base/time.h"

namespace walpost::pgoutput {

// The LSN in the frame's header is neither monotonic nor unique: never acknowledge, order or identify by it.
struct XLogData {
  // Of a row or message: the LSN of its own record. 0/0 = of what describes it.
  base::Lsn start;
  base::WallTime server_time;  // when it was sent
  std::string_view payload;
};

struct Keepalive {
  base::Lsn wal_end;  // what the walsender has decoded
  base::WallTime server_time;
  bool reply_requested = false;
};

using Frame = std::variant<XLogData, Keepalive>;

absl::StatusOr<Frame> DecodeFrame(std::string_view bytes);

struct StandbyStatus {
  base::Lsn write;
  base::Lsn flush;
  base::Lsn apply;
  base::WallTime client_time;
  bool reply_requested = false;
};

// 34 bytes. The server ignores flush = 0 for the slot.
std::string EncodeStandbyStatus(const StandbyStatus& status);

}  // namespace walpost::pgoutput
