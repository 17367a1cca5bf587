// FindSourceChange - is what was connected to now still the history that was read before?
// Why: a DNS name that moved, a failover that lost WAL, or a table dropped and created again all
//   connect without complaint, and then rows are missing without a word.
// Thread: any.
// Source: docs/runbook.md, cluster_changed, timeline_changed and table_replaced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/lsn.h"
#include "base/source_facts.h"
#include "pipeline/halt.h"

namespace walpost::pipeline {

// `seen_lsn` is how far was read from `before`, parts of a transaction included. A server that was set
// back and has gone past that is found by KnownTransactions only.
std::optional<Halt> FindSourceChange(const base::SourceFacts& before, const base::SourceFacts& now,
                                     base::Lsn seen_lsn);

// In words, of a standby that is `BehindTimeline(other)`: that passes.
std::string NotFollowedYet(const base::SourceFacts& standby, std::uint32_t other);

}  // namespace walpost::pipeline
