#include "pipeline/remembered_progress.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/strings/str_format.h"
#include "pipeline/fingerprint.h"
#include "pipeline/source_change.h"

namespace walpost::pipeline {

using base::FindOther;
using base::HaltReason;
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

// Where something became an outbox may lie far behind what was delivered by then. Up to there a server on
// another timeline has rows that were nobody's, and nothing says which.
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

// A standby that is behind may be of a copy that was set back. The stream begins at the last transaction that
// was delivered: new events before it would be left out, and nothing would show it.
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
