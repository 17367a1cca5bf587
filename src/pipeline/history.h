// FindEdit - has anything been changed since that decides which rows the server sends?
// Why: rows that are inserted while a table is out of the publication are in no stream, and nothing
//   in the stream says so. Put back, everything looks as before, but for the numbers of the
//   catalog's rows.
// Thread: any.
// Source: docs/schema-changes.md; docs/runbook.md, publication_missing and table_replaced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/lsn.h"
#include "base/source_facts.h"
#include "pipeline/halt.h"

namespace walpost::pipeline {

// Names the first edit between the two looks, since when rows may be missing, and the way out.
std::optional<Halt> FindEdit(const base::Fingerprint& before, const base::Fingerprint& now);

// Takes over from `before` since when each table and prefix of `now` holds events. What `before`
// lacks holds them from `prefixes` on, or as `tables` says; true when there is any such.
bool KeepSince(const base::Fingerprint& before, base::Since prefixes, const base::Adoption& tables,
               base::Fingerprint* now);

// The tables that `before` lacks, schema.table each.
std::vector<std::string> AdoptedTables(const base::Fingerprint& before,
                                       const base::Fingerprint& now);

// FindSourceChange - is what was connected to now still the history that was read before?
// Why: a DNS name that moved, a failover that lost WAL, or a table dropped and created again all
//   connect without complaint, and then rows are missing without a word.
// Thread: any.
// Source: docs/runbook.md, cluster_changed, timeline_changed and table_replaced.

// `seen_lsn` is how far was read from `before`, parts of a transaction included. A server that was
// set back and has gone past that is found by KnownTransactions only.
std::optional<Halt> FindSourceChange(const base::SourceFacts& before, const base::SourceFacts& now,
                                     base::Lsn seen_lsn);

// In words, of a standby that is `BehindTimeline(other)`: that passes.
std::string NotFollowedYet(const base::SourceFacts& standby, std::uint32_t other);

// CheckRememberedProgress - does what was connected to continue what Kafka remembers of this
// pipeline?
// Why: a slot that was advanced or made anew by someone else, a restored or promoted server, a
//   publication or table that was replaced while walpost was away: all connect without complaint,
//   and then events are missing without a word (guarantee G6).
// Thread: any.
// Source: docs/design.md, "Remembered progress"; docs/runbook.md has a section for each reason.
struct ProgressCheck {
  std::optional<Halt> halt;
  std::string not_yet;                     // why this cannot be decided yet; "" = it can
  std::optional<base::Progress> progress;  // streaming goes on from there; none = a first start
};

// `records` are the pipeline's, in any order. Of the newest epoch, the highest position of this
// cluster counts and not the last written: a late record of an instance that is gone is older, but
// true.
ProgressCheck CheckRememberedProgress(const std::vector<base::Progress>& records,
                                      const base::SourceFacts& facts);

// Is `known`, which this process has had acknowledged, all that must be judged, unless an operator
// has decided since? Then a reconnect needs no Kafka.
bool Suffices(const std::optional<base::Progress>& known, const base::SourceFacts& facts);

// Is there such a decision among `records`? Whatever is delivered and remembered without it counts
// for nothing.
bool DecidedSince(const base::Progress& known, const std::vector<base::Progress>& records);

}  // namespace walpost::pipeline
