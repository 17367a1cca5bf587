// SchemaLookUps - asks for the schemas that records wait for, and judges the answers.
// Why: records of a schema that is not known wait with their topic, as for a topic that is not
//   known; what is known lasts through any outage of the registry.
// How: the runtime carries out one Take at a time, in which each source has its turn. What the
//   registry says about a schema decides on the event; that it cannot be reached, or lets nobody
//   in, never does. Where it answers others and not about this one, that decides after kUnclearFor:
//   a name that a writer chose must not stop the line without end.
// Thread: loop thread.
// Errors: in an answer: kUnavailable = try again; kAborted = it answers, but not about this one;
//   kOutOfRange = rejected, and it was not asked; any other = what was decided.
// Source: docs/schema-registry.md.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "envelope/schema.h"

namespace walpost::pipeline {

// What the registry is asked for.
struct SchemaLookUp {
  std::vector<std::pair<envelope::SchemaTable::Ref, envelope::SchemaNeed>> needs;
};

// In the order of the needs, at least one. Those that it ends before are asked for next.
using SchemaAnswers = std::vector<absl::StatusOr<envelope::Schema>>;

class SchemaLookUps {
 public:
  // An operator may have registered the schema meanwhile.
  static constexpr std::chrono::milliseconds kRejectionKept{30'000};
  // A source's schemas have this time together, so that who names many of them holds up the others
  // once. It is time in which the registry answers, since the first unclear answer. It begins again
  // when the last of them gets a clear answer, and kUnclearKept after an unclear one.
  static constexpr std::chrono::milliseconds kUnclearFor = envelope::kSchemaUnclearFor;
  static constexpr std::chrono::milliseconds kUnclearKept = envelope::kSchemaUnclearKept;
  // Of each of them, the last answers must be unclear, and the registry not away between them.
  static constexpr int kUnclearAnswers = envelope::kSchemaUnclearAnswers;
  static constexpr std::chrono::milliseconds kAwayMin{5'000};
  static constexpr std::size_t kNeedsMax = 16;
  // For what is due, and again for what was unclear.
  static constexpr std::chrono::milliseconds kLookEvery = envelope::kSchemaAskAgainAfter;
  static constexpr std::chrono::milliseconds kCountedMax = envelope::kSchemaCountedMax;
  static constexpr std::chrono::milliseconds kPause{100};  // while all that waits was unclear
  static constexpr std::chrono::milliseconds kTroubleKept{60'000};

  struct Statistics {
    std::uint64_t look_ups = 0;  // answers, also those that say no
    std::uint64_t rejections = 0;
    std::uint64_t failures = 0;  // the registry could not be asked
  };

  // Schemas in use that may change are looked up again after `refresh`.
  SchemaLookUps(std::chrono::milliseconds refresh, base::BackoffOptions backoff, std::uint64_t seed)
      : refresh_(refresh), backoff_(backoff, seed) {}

  envelope::SchemaTable* table() { return &table_; }

  const envelope::SchemaTable& table() const { return table_; }

  // The table is crowded, and no look-up is under way that names what is in it.
  bool must_forget() const { return !asking_ && table_.crowded(); }

  std::optional<SchemaLookUp> Take(base::Now now);
  void OnAnswers(const SchemaLookUp& look_up, const SchemaAnswers& answers, base::Now now);

  // An operator wants it looked at again now.
  void Resume(base::Now now);

  // Nothing while a look-up is under way.
  std::optional<base::MonotonicTime> NextDeadline() const;

  const Statistics& statistics() const { return statistics_; }

  // Why the registry could not be asked last time; empty = it could.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Times {
    std::uint64_t made_in = 0;  // of the entry that it is about
    base::MonotonicTime due;    // it is asked for again, a rejection when it is needed
    int unclear = 0;            // so many of the last answers were
    bool rejected = false;
  };

  // A source has two: what records wait for, and what is refreshed.
  using Lane = std::uint64_t;

  struct Due {
    Lane lane = 0;
    base::MonotonicTime since;
    envelope::SchemaTable::Ref ref = 0;

    friend auto operator<=>(const Due&, const Due&) = default;
  };

  struct Patience {
    std::chrono::milliseconds began{0};  // by answered_for_
    base::MonotonicTime at;              // the last unclear answer
  };

  void Judge(envelope::SchemaTable::Ref ref, const absl::StatusOr<envelope::Schema>& answer,
             base::Now now);
  // False: the answer says nothing about the schema.
  bool Decides(envelope::SchemaTable::Ref ref, const absl::Status& answer, base::Now now);
  void ForgetUnclear();
  void OnAnswered(base::MonotonicTime now);
  void CountUnclear(std::uint32_t source, base::MonotonicTime now);
  Times& TimesOf(envelope::SchemaTable::Ref ref);
  // That records wait for; of one source, or of all.
  bool AnyUnclear(std::optional<std::uint32_t> source);
  bool IsPatienceOver(std::uint32_t source) const;
  Lane LaneOf(envelope::SchemaTable::Ref ref) const;
  // What records wait for.
  std::vector<Due> FindWaiting(base::MonotonicTime now);
  // Rejections that are due are forgotten.
  void AddRefreshes(base::MonotonicTime now, std::vector<Due>* due);
  // No more than kNeedsMax of them; unclear ones at most once in kLookEvery.
  std::vector<envelope::SchemaTable::Ref> InTurns(std::vector<Due> due, base::MonotonicTime now);

  const std::chrono::milliseconds refresh_;
  base::Backoff backoff_;
  envelope::SchemaTable table_;
  std::deque<Times> times_;  // by ref - 1; a deque, so that references to them last
  bool asking_ = false;
  base::MonotonicTime asked_at_;  // the look-up that is under way
  base::MonotonicTime look_at_;
  base::MonotonicTime ask_at_;
  std::map<std::uint32_t, Patience> patience_;  // by SchemaNeed::source
  std::chrono::milliseconds answered_for_{0};
  base::MonotonicTime answered_at_;
  std::optional<base::MonotonicTime> away_since_;  // without an answer
  base::MonotonicTime unclear_from_;               // what was unclear is asked for again
  Lane last_lane_ = 0;                             // whose schema was answered last
  std::string trouble_;
  base::MonotonicTime trouble_until_;  // another reason may take its place
  Statistics statistics_;
};

}  // namespace walpost::pipeline
