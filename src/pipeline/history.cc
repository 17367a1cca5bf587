#include "pipeline/history.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "pipeline/known_transactions.h"

namespace walpost::pipeline {
namespace {

using base::Fingerprint;
using base::HaltReason;
using base::PublishedTable;

// Everything that committed before the last look was complete.
std::string Since(const Fingerprint& before) {
  if (!before.looked_lsn.valid()) {
    return "of the time between";
  }
  return absl::StrFormat(
      "committed after %s (%s)", before.looked_lsn.ToString(),
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ",
                       absl::FromUnixMicros(before.looked_at.time_since_epoch().count()),
                       absl::UTCTimeZone()));
}

// `walpost replay --missing` compares with the topics, so it needs no exact span.
Halt MakeHalt(HaltReason reason, const std::string& what, const Fingerprint& before,
              const char* first_step) {
  return Halt{
      reason,
      absl::StrFormat("%s, so rows %s may be missing; %s`walpost slot advance --yes` goes on from "
                      "here, and then `walpost replay --missing --in-place` sends what is missing; "
                      "see docs/runbook.md, %s",
                      what, Since(before), first_step, base::HaltReasonName(reason))};
}

// One that stayed has published the table all the time, and whole.
bool StaysPublished(const PublishedTable& before, const PublishedTable& now) {
  return before.memberships.empty() ||
         std::any_of(before.memberships.begin(), before.memberships.end(), [&](std::uint32_t row) {
           return std::find(now.memberships.begin(), now.memberships.end(), row) !=
                  now.memberships.end();
         });
}

// It is of before they were remembered.
bool RemembersNone(const Fingerprint& before) {
  return before.publication_oid == 0 && before.tables.empty();
}

}  // namespace

std::optional<Halt> FindEdit(const Fingerprint& before, const Fingerprint& now) {
  if (before.publication_oid != 0 && now.publication_oid != before.publication_oid) {
    return MakeHalt(HaltReason::kPublicationMissing,
                    absl::StrFormat("the publication is OID %u but was OID %u: it was dropped and "
                                    "created again",
                                    now.publication_oid, before.publication_oid),
                    before,
                    "`walpost slot recreate --yes` makes the slot anew behind it and sends them; "
                    "where the server can still read the log, ");
  }
  for (const PublishedTable& old : before.tables) {
    for (const PublishedTable& table : now.tables) {
      const bool same_name = table.schema == old.schema && table.name == old.name;
      if (!same_name && table.oid != old.oid) {
        continue;
      }
      if (table.oid != old.oid) {
        return MakeHalt(HaltReason::kTableReplaced,
                        absl::StrFormat("table %s.%s is OID %u but was OID %u: it was dropped and "
                                        "created again",
                                        table.schema, table.name, table.oid, old.oid),
                        before, "");
      }
      if (!StaysPublished(old, table)) {
        return MakeHalt(HaltReason::kPublicationMissing,
                        absl::StrFormat("table %s.%s was taken out of the publication and added "
                                        "again",
                                        table.schema, table.name),
                        before, "");
      }
    }
  }
  if (before.publication_xmin != 0 && now.publication_xmin != before.publication_xmin) {
    return MakeHalt(HaltReason::kPublicationMissing,
                    "the publication was altered (ALTER PUBLICATION ... SET, RENAME or OWNER), and "
                    "walpost cannot know what it published meanwhile",
                    before, "");
  }
  return std::nullopt;
}

bool KeepSince(const Fingerprint& before, base::Since prefixes, const base::Adoption& tables,
               Fingerprint* now) {
  if (RemembersNone(before)) {
    return false;
  }
  bool any_adopted = false;
  for (PublishedTable& table : now->tables) {
    const PublishedTable* const old = before.Find(table);
    table.since = old != nullptr ? old->since : tables.since;
    table.first_xid = old != nullptr ? old->first_xid : tables.first_xid;
    any_adopted = any_adopted || old == nullptr;
  }
  now->prefixes_since.clear();
  for (const std::string& prefix : now->message_prefixes) {
    const bool known = std::find(before.message_prefixes.begin(), before.message_prefixes.end(),
                                 prefix) != before.message_prefixes.end();
    const auto since = before.prefixes_since.find(prefix);
    if (!known) {
      now->prefixes_since.emplace(prefix, prefixes);
      any_adopted = true;
    } else if (since != before.prefixes_since.end()) {
      now->prefixes_since.insert(*since);
    }
  }
  return any_adopted;
}

std::vector<std::string> AdoptedTables(const Fingerprint& before, const Fingerprint& now) {
  std::vector<std::string> adopted;
  for (const PublishedTable& table : now.tables) {
    if (!RemembersNone(before) && before.Find(table) == nullptr) {
      adopted.push_back(absl::StrFormat("%s.%s", table.schema, table.name));
    }
  }
  return adopted;
}

namespace {

// Two servers that were promoted from the same one have a timeline of the same number, but not the
// same history.
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

using base::FindOther;
using base::Progress;
using base::SourceFacts;

namespace {

constexpr char kAdopt[] = "`walpost slot advance --yes` goes on from here";

Halt MakeHalt(HaltReason reason, const std::string& detail) {
  return Halt{reason,
              absl::StrFormat("%s; see docs/runbook.md, %s", detail, base::HaltReasonName(reason))};
}

std::optional<Halt> CheckTimeline(const Progress& progress, const SourceFacts& facts) {
  bool ours = progress.timeline == facts.timeline;
  for (const base::TimelineEnd& ancestor : facts.timeline_history) {
    if (ancestor.timeline != progress.timeline) {
      continue;
    }
    ours = true;
    if (progress.end_lsn > ancestor.end) {
      return MakeHalt(
          HaltReason::kTimelineChanged,
          absl::StrFormat("timeline %u ended at %s, but events up to %s of it are in Kafka: the "
                          "failover to timeline %u lost them in the database; %s",
                          ancestor.timeline, ancestor.end.ToString(), progress.end_lsn.ToString(),
                          facts.timeline, kAdopt));
    }
  }
  if (!ours) {
    return MakeHalt(
        HaltReason::kTimelineChanged,
        absl::StrFormat("the server is on timeline %u, but progress is remembered on "
                        "timeline %u (%s), which is not in its history: connect to the "
                        "primary, or, when this is it, %s",
                        facts.timeline, progress.timeline, progress.end_lsn.ToString(), kAdopt));
  }
  const std::uint32_t here = facts.TimelineOf(progress.end_lsn);
  if (progress.timeline > here) {
    return MakeHalt(
        HaltReason::kTimelineChanged,
        absl::StrFormat("%s was on timeline %u when it was remembered, but is on timeline %u in "
                        "this server's history, where timeline %u began later: it is another "
                        "history; %s",
                        progress.end_lsn.ToString(), progress.timeline, here, progress.timeline,
                        kAdopt));
  }
  if (!facts.in_recovery && facts.server_wal_lsn.valid() &&
      progress.end_lsn > facts.server_wal_lsn) {
    return MakeHalt(
        HaltReason::kTimelineChanged,
        absl::StrFormat("the server's log ends at %s, but events up to %s are in "
                        "Kafka: it was restored, or is an old copy, and streaming from "
                        "there would leave out what it writes next; %s",
                        facts.server_wal_lsn.ToString(), progress.end_lsn.ToString(), kAdopt));
  }
  return std::nullopt;
}

// Where something became an outbox may lie far behind what was delivered by then. Up to there a
// server on another timeline has rows that were nobody's, and nothing says which.
std::optional<Halt> CheckAdoption(const std::string& name, std::uint32_t timeline, base::Lsn lsn,
                                  const SourceFacts& facts) {
  const bool known = timeline != 0 && lsn.valid();
  if (!known || facts.HasBegun(timeline, lsn)) {
    return std::nullopt;
  }
  return MakeHalt(
      HaltReason::kTimelineChanged,
      absl::StrFormat("%s became an outbox at %s of timeline %u, which is not in the history of "
                      "this server, on timeline %u: it was set back, or is another copy; %s",
                      name, lsn.ToString(), timeline, facts.timeline, kAdopt));
}

std::optional<Halt> CheckAdoptions(const Progress& progress, const SourceFacts& facts) {
  for (const base::PublishedTable& table : progress.tables) {
    const std::string name = absl::StrFormat("table %s.%s", table.schema, table.name);
    std::optional<Halt> halt = CheckAdoption(name, table.since.timeline, table.since.lsn, facts);
    if (!halt && table.first_xid.xid.value != 0) {
      halt = CheckAdoption(name, table.first_xid.timeline, table.first_xid.lsn, facts);
    }
    if (halt) {
      return halt;
    }
  }
  for (const auto& [prefix, since] : progress.prefixes_since) {
    const std::string name = absl::StrFormat("prefix '%s'", prefix);
    if (auto halt = CheckAdoption(name, since.timeline, since.lsn, facts)) {
      return halt;
    }
  }
  return std::nullopt;
}

// A standby that is behind may be of a copy that was set back. The stream begins at the last
// transaction that was delivered: new events before it would be left out, and nothing would show
// it.
std::string BehindProgress(const Progress& progress, const SourceFacts& facts) {
  if (!facts.in_recovery || facts.looked_lsn >= progress.end_lsn) {
    return "";
  }
  return absl::StrFormat(
      "%s, a standby, has replayed up to %s, but everything up to %s was read before: walpost "
      "waits until it has come that far",
      facts.host, facts.looked_lsn.ToString(), progress.end_lsn.ToString());
}

std::optional<Halt> CheckPrefixes(const Progress& progress, const SourceFacts& facts) {
  if (const std::string* const gone =
          FindOther(progress.message_prefixes, facts.message_prefixes)) {
    return MakeHalt(
        HaltReason::kInitIncomplete,
        absl::StrFormat("messages with prefix '%s' were events until %s, and messages.prefixes "
                        "does not list it any more: those that are still to be read would be "
                        "left out; add it and restart, or, when that is right, %s",
                        *gone, progress.end_lsn.ToString(), kAdopt));
  }
  const std::string* const added = FindOther(facts.message_prefixes, progress.message_prefixes);
  if (added != nullptr && facts.dead_letters_come_again && progress.publication_oid != 0) {
    return MakeHalt(
        HaltReason::kInitIncomplete,
        absl::StrFormat(
            "messages with prefix '%s' are new in messages.prefixes, and events with rows "
            "in walpost.dead_letters come again; with these messages they would have other "
            "positions, and not be known; take the prefix out, wait until `walpost "
            "slot list` shows that the slot has caught up, and add it then",
            *added));
  }
  return std::nullopt;
}

// A table may have another name by now.
std::optional<Halt> CheckTables(const Progress& progress, const SourceFacts& facts) {
  for (const base::PublishedTable& table : progress.tables) {
    if (facts.Find(table) == nullptr) {
      return MakeHalt(
          HaltReason::kInitIncomplete,
          absl::StrFormat("rows of table %s.%s were events until %s, and outboxes does not list it "
                          "any more: those that are still to be read would be left out; add it and "
                          "restart, or, when that is right, %s",
                          table.schema, table.name, progress.end_lsn.ToString(), kAdopt));
    }
  }
  return std::nullopt;
}

// The newest epoch's highest of this cluster; else its highest of another one.
const Progress* Choose(const std::vector<Progress>& records, std::uint64_t system_identifier) {
  const auto rank = [system_identifier](const Progress& progress) {
    return std::tuple(progress.epoch, progress.system_identifier == system_identifier,
                      progress.timeline, progress.end_lsn, progress.recorded_at);
  };
  const Progress* chosen = nullptr;
  for (const Progress& progress : records) {
    if (chosen == nullptr || rank(progress) > rank(*chosen)) {
      chosen = &progress;
    }
  }
  return chosen;
}

std::optional<Halt> CheckNothing(const SourceFacts& facts) {
  if (!facts.consistent_point.valid() || facts.confirmed_flush_lsn <= facts.consistent_point) {
    return std::nullopt;
  }
  return MakeHalt(
      HaltReason::kProgressUnreadable,
      absl::StrFormat("no progress is remembered in Kafka, but the slot stands at %s and began at "
                      "%s: somebody streamed or moved it, and walpost cannot know whether events "
                      "are missing; %s",
                      facts.confirmed_flush_lsn.ToString(), facts.consistent_point.ToString(),
                      kAdopt));
}

}  // namespace

ProgressCheck CheckRememberedProgress(const std::vector<Progress>& records,
                                      const SourceFacts& facts) {
  const Progress* const progress = Choose(records, facts.system_identifier);
  if (progress == nullptr) {
    return {CheckNothing(facts), "", std::nullopt};
  }
  if (progress->epoch >= Progress::kEpochMax) {
    return {MakeHalt(
                HaltReason::kProgressUnreadable,
                absl::StrFormat("a record of the progress topic has epoch %u, which leaves no "
                                "room for higher ones: somebody else wrote it, or one that walpost "
                                "counted on from; take another delivery.progress_topic, and "
                                "see to it that nobody else may write there (docs/security.md)",
                                progress->epoch)),
            "", std::nullopt};
  }
  if (progress->system_identifier != facts.system_identifier) {
    return {MakeHalt(HaltReason::kClusterChanged,
                     absl::StrFormat("this is cluster %u, but progress is remembered on cluster %u "
                                     "(%s): correct source.conninfo, give a copy another `name`, "
                                     "or, when production moved here, %s",
                                     facts.system_identifier, progress->system_identifier,
                                     progress->end_lsn.ToString(), kAdopt)),
            "", std::nullopt};
  }
  if (facts.BehindTimeline(progress->timeline)) {
    return {std::nullopt, NotFollowedYet(facts, progress->timeline), std::nullopt};
  }
  std::optional<Halt> halt = CheckTimeline(*progress, facts);
  if (!halt) {
    halt = CheckAdoptions(*progress, facts);
  }
  if (!halt && facts.confirmed_flush_lsn > progress->end_lsn) {
    halt =
        MakeHalt(HaltReason::kSlotMoved,
                 absl::StrFormat(
                     "the slot stands at %s, but walpost came only to %s: it was advanced or "
                     "made anew by somebody else, and events committed between are not in "
                     "Kafka; %s",
                     facts.confirmed_flush_lsn.ToString(), progress->end_lsn.ToString(), kAdopt));
  }
  if (!halt) {
    halt = FindEdit(*progress, facts);
  }
  if (!halt) {
    halt = CheckPrefixes(*progress, facts);
  }
  if (!halt) {
    halt = CheckTables(*progress, facts);
  }
  if (std::string behind = BehindProgress(*progress, facts); !halt && !behind.empty()) {
    return {std::nullopt, std::move(behind), std::nullopt};
  }
  return halt ? ProgressCheck{std::move(halt), "", std::nullopt}
              : ProgressCheck{std::nullopt, "", *progress};
}

bool Suffices(const std::optional<Progress>& known, const SourceFacts& facts) {
  return known && known->system_identifier == facts.system_identifier &&
         facts.confirmed_flush_lsn <= known->end_lsn;
}

bool DecidedSince(const Progress& known, const std::vector<Progress>& records) {
  return std::any_of(records.begin(), records.end(),
                     [&](const Progress& record) { return record.epoch > known.epoch; });
}

}  // namespace walpost::pipeline
