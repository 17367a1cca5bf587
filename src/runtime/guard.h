// MakeGuard - what the connect job asks between preflight and START: does this source continue what
// Kafka remembers?
// Why: read as late as that, the topic is never older than the slot's position, and an instance
//   that only waits for the slot does not read it at all.
// Thread: made on the loop thread, called on a helper thread; holds copies only.
#pragma once

#include <chrono>
#include <optional>

#include "base/source_facts.h"
#include "postgres/connect.h"
#include "runtime/options.h"

namespace walpost::runtime {

inline constexpr std::chrono::milliseconds kReadProgressWithin{10'000};
// Where what this process knows is enough, unless an operator has decided since. Who decides needs Kafka,
// so a Kafka that does not answer holds up no reconnect for longer.
inline constexpr std::chrono::milliseconds kReadDecisionWithin{2'000};

// `known` is what this process knows to be acknowledged; while the slot is not above it, only a newer
// decision in Kafka counts for more. Null when nothing is remembered.
postgres::Guard MakeGuard(const RunOptions& options, std::optional<base::Progress> known);

}  // namespace walpost::runtime
