// MakeGuard - what the connect job asks between preflight and START: does this source continue what
// Kafka remembers?
// Why: read as late as that, the topic is never older than the slot's position, and an instance
//   that only waits for the slot does not read it at all.
// Thread: made on the loop thread, called on a helper thread; holds copies only.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/source_facts.h"
#include "postgres/connect.h"
#include "runtime/options.h"

namespace walpost::runtime {

inline constexpr std::chrono::milliseconds kReadProgressWithin{10'000};
// Where Kafka is slower than that, each attempt gets twice the time of the one before, up to this.
inline constexpr std::chrono::milliseconds kReadProgressWithinMax{40'000};
// Behind START the server waits too, and the slot is in use.
inline constexpr std::chrono::milliseconds kAskAgainWithin{15'000};
// A process that has streamed believes for this long that a missing right passes. Between two
// answers at most kDenyingMax count: in an outage there are none.
inline constexpr std::chrono::milliseconds kDeniedMax{60'000};
inline constexpr std::chrono::milliseconds kDenyingMax{15'000};

// What a process knows of the attempts before. Used by one attempt at a time.
struct GuardHistory {
  std::chrono::milliseconds read_within = kReadProgressWithin;
  // The last denial; none = Kafka has answered otherwise since.
  std::optional<std::chrono::steady_clock::time_point> denied_at;
  std::chrono::milliseconds denying{0};  // for how long until then
};

// `known` is what this process knows to be acknowledged. While the slot is not above it, it counts
// for more than the topic, unless that has a newer epoch: another process has held the slot, or an
// operator has decided. Nobody can know that without Kafka, so a connection is made only when it
// answers. Null when nothing is remembered.
postgres::Guard MakeGuard(const RunOptions& options, std::optional<base::Progress> known,
                          std::shared_ptr<GuardHistory> history);

}  // namespace walpost::runtime
