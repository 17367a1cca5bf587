// Position - the identity of an event in the stream: (system identifier, timeline, commit_lsn,
// ordinal in transaction).
// Why: the LSN of a row is neither unique nor ordered and xids wrap; this is the same on every
//   redelivery. The ordinal counts the transaction's events from 0: rows of our outboxes and messages
//   of our prefixes. Which others the server sends depends on more than its log.
// Units: text form is `<system identifier, 16 hex>-<timeline, 8 hex>-<commit_lsn, 16 hex>-<ordinal,
//   8 hex>`, lower case, 51 characters, which sorts as text in stream order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "base/time.h"

namespace walpost::envelope {

struct Position {
  std::uint64_t system_identifier = 0;
  std::uint32_t timeline = 0;
  base::Lsn commit_lsn;
  std::uint32_t ordinal = 0;

  static constexpr std::size_t kTextSize = 16 + 1 + 8 + 1 + 16 + 1 + 8;

  // Exactly kTextSize characters, no terminator.
  void Format(char* text) const;
  std::string ToString() const;
  static absl::StatusOr<Position> Parse(std::string_view text);

  friend auto operator<=>(const Position&, const Position&) = default;
};

// What the transaction adds to each of its events.
struct TransactionInfo {
  base::Xid xid;
  base::WallTime commit_time;
};

}  // namespace walpost::envelope
