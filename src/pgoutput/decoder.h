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

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "pgoutput/message.h"

namespace walpost::pgoutput {

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
