// Decoder - one pgoutput payload (the bytes inside an XLogData frame) to one Message.
// Why: fails closed. An unknown tag, a short or long message, an unknown flag or an absurd count is
//   kDataLoss: the caller must stop without confirming, because a message that is not understood
//   may be an event.
// Thread: one owner.
// Lifetime: see message.h; scratch space is reused, nothing is allocated per insert.
// Units/limits: at most kColumnsMax columns (PostgreSQL's own limit is 1600); counts are compared
//   with the bytes left before anything is reserved.
// Errors: kDataLoss, naming message, field and sizes; never row values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "base/time.h"
#include "pgoutput/message.h"

namespace walpost::pgoutput {

// Frames of the replication COPY stream: what the server sends ('w', 'k') and the status we answer
// with ('r').
// Why: pure bytes <-> structs, so that the simulator speaks to the pipeline in the server's own
//   words.
// Thread: free functions.   Lifetime: XLogData::payload points into the frame given.
// Errors: kDataLoss for an unknown tag, a short or a long frame; the message names tag and sizes,
//   never row values.
// Source: PostgreSQL manual, "Streaming Replication Protocol".

// The LSN in the frame's header is neither monotonic nor unique: never acknowledge, order or
// identify by it.
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

class Decoder {
 public:
  static constexpr std::size_t kColumnsMax = 1600;

  // On success `*message` holds the decoded message.
  absl::Status Decode(std::string_view payload, Message* message);

 private:
  std::vector<Value> values_;
  std::vector<RelationId> relation_ids_;
};

}  // namespace walpost::pgoutput
