#include "pipeline/source_change.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "pipeline/fingerprint.h"
#include "pipeline/known_transactions.h"

namespace walpost::pipeline {

using base::HaltReason;

namespace {

// Two servers that were promoted from the same one have a timeline of the same number, but not the same
// history.
std::optional<Halt> CompareTimelines(const base::SourceFacts& before,
                                     const base::SourceFacts& now) {
  for (const base::TimelineEnd& ended : before.timeline_history) {
    for (const base::TimelineEnd& other : now.timeline_history) {
      if (other.timeline == ended.timeline && other.end != ended.end) {
        return Halt{HaltReason::kTimelineChanged,
                    absl::StrFormat("timeline %u ended at %s in the history that was read before, "
                                    "but at %s in that of the server now: it is another history; "
                                    "see docs/runbook.md, timeline_changed",
                                    ended.timeline, ended.end.ToString(), other.end.ToString())};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Halt> FindSourceChange(const base::SourceFacts& before, const base::SourceFacts& now,
                                     base::Lsn seen_lsn) {
  if (now.system_identifier != before.system_identifier) {
    return Halt{HaltReason::kClusterChanged,
                absl::StrFormat("connected to cluster %u, but was streaming from cluster %u: "
                                "source.conninfo reaches another "
                                "server than before",
                                now.system_identifier, before.system_identifier)};
  }
  for (const base::TimelineEnd& ancestor : now.timeline_history) {
    if (ancestor.timeline == before.timeline && seen_lsn > ancestor.end) {
      return Halt{HaltReason::kTimelineChanged,
                  absl::StrFormat("timeline %u ended at %s, but events up to %s were received from "
                                  "it: the failover to timeline %u "
                                  "lost them in the database although they may be in Kafka",
                                  ancestor.timeline, ancestor.end.ToString(), seen_lsn.ToString(),
                                  now.timeline)};
    }
  }
  if (now.timeline < before.timeline) {
    return Halt{HaltReason::kTimelineChanged,
                absl::StrFormat("the server is on timeline %u, but was on timeline %u before",
                                now.timeline, before.timeline)};
  }
  if (std::optional<Halt> halt = CompareTimelines(before, now)) {
    return halt;
  }
  // A standby may be behind for a while.
  if (!now.in_recovery && now.server_wal_lsn.valid() && now.server_wal_lsn < seen_lsn) {
    return OtherHistory(absl::StrFormat("this server was read up to %s, but now its log ends at %s",
                                        seen_lsn.ToString(), now.server_wal_lsn.ToString()));
  }
  return FindEdit(before, now);
}

std::string NotFollowedYet(const base::SourceFacts& standby, std::uint32_t other) {
  return absl::StrFormat(
      "%s, a standby, is on timeline %u and has not followed the switch to timeline %u yet",
      standby.host, standby.timeline, other);
}

}  // namespace walpost::pipeline
