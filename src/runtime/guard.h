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

// `known` is what this process knows to be acknowledged. While the slot is not above it, it counts for more
// than the topic, unless that has a newer epoch: another process has held the slot, or an operator has
// decided. Nobody can know that without Kafka, so a connection is made only when it answers. Null when
// nothing is remembered.
postgres::Guard MakeGuard(const RunOptions& options, std::optional<base::Progress> known);

}  // namespace walpost::runtime
