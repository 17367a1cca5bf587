#include "pipeline/source_change.h"

#include "absl/strings/str_format.h"

namespace walpost::pipeline {

using base::HaltReason;

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
  if (now.publication_oid != before.publication_oid) {
    return Halt{
        HaltReason::kPublicationMissing,
        absl::StrFormat("the publication is OID %u but was OID %u on the last connection: it "
                        "was dropped and created again, so rows of the time between may be "
                        "missing; see docs/runbook.md, publication_missing",
                        now.publication_oid, before.publication_oid)};
  }
  for (const base::PublishedTable& old : before.tables) {
    for (const base::PublishedTable& table : now.tables) {
      if (table.schema == old.schema && table.name == old.name && table.oid != old.oid) {
        return Halt{HaltReason::kTableReplaced,
                    absl::StrFormat("table %s.%s is OID %u but was OID %u on the last connection: "
                                    "it was dropped and created "
                                    "again, so rows of the time between may be missing; see "
                                    "docs/runbook.md, table_replaced",
                                    table.schema, table.name, table.oid, old.oid)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace walpost::pipeline
