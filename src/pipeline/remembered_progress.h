// CheckRememberedProgress - does what was connected to continue what Kafka remembers of this pipeline?
// Why: a slot that was advanced or made anew by someone else, a restored or promoted server, a
//   publication or table that was replaced while walpost was away: all connect without complaint,
//   and then events are missing without a word (guarantee G6).
// Thread: any.
// Source: docs/design.md, "Remembered progress"; docs/runbook.md has a section for each reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/source_facts.h"
#include "pipeline/halt.h"

namespace walpost::pipeline {

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

// Is `known`, which this process has had acknowledged, all that must be judged, unless an operator has
// decided since? Then a reconnect needs no Kafka.
bool Suffices(const std::optional<base::Progress>& known, const base::SourceFacts& facts);

// Is there such a decision among `records`? Whatever is delivered and remembered without it counts for
// nothing.
bool DecidedSince(const base::Progress& known, const std::vector<base::Progress>& records);

}  // namespace walpost::pipeline
