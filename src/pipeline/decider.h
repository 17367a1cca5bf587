// Decider - what becomes of an event that cannot be delivered: `delivery.on_undeliverable`.
// Why: one bad event must not stop the rest unless that is wanted, and must never vanish: it counts
//   as settled only when Kafka has acknowledged its letter, or when `skip` counted it.
// How: a letter takes the event's place in the tracker and goes through the same sink. What the
//   dead-letter topic does not take either becomes a stub, which is small; a refused stub halts.
// Thread: loop thread.   Lifetime: the pointers must outlive it.
// Source: docs/dead-letters.md.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/source_facts.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "envelope/letter.h"
#include "envelope/position.h"
#include "envelope/schema_table.h"
#include "outbox/event.h"
#include "pipeline/concerned_event.h"
#include "pipeline/counters.h"
#include "pipeline/halt.h"
#include "pipeline/options.h"
#include "pipeline/parking_lot.h"

namespace walpost::pipeline {

// For the log: what was decided without an operator.
struct Decision {
  enum class Kind { kSkipped, kDeadLettered, kParked, kRetried };

  Kind kind = Kind::kSkipped;
  ConcernedEvent event;
  std::string detail;
  std::uint64_t not_told = 0;  // decisions before this one that were too many to tell
};

// A row or message that never became a record.
struct UnfitEvent {
  const outbox::Event* event = nullptr;     // as far as it was understood
  std::optional<std::string_view> content;  // of a message, which stands in no table
  std::uint64_t bytes = 0;
  base::Lsn commit_lsn;
  std::uint32_t ordinal = 0;
  base::WallTime commit_time;
  std::uint32_t table = 0;  // index into Counters::received_by_table
  std::string detail;
  std::string reason;  // a word of outbox/unfit.h
};

class Decider {
 public:
  // Decisions waiting to be told; more are only counted.
  static constexpr std::size_t kUntoldMax = 100;

  // `schemas` may be null where nothing is framed.
  Decider(const PipelineOptions& options, delivery::Tracker* tracker, Counters* counters,
          ParkingLot* lot, const envelope::SchemaTable* schemas = nullptr);

  void OnConnected(const base::SourceFacts& facts) { facts_ = facts; }

  // No sink holds the record. Nothing = decided: its entry is settled, or holds a letter to submit.
  std::optional<Halt> Decide(delivery::Sequence sequence, const delivery::Failure& failure,
                             std::uint32_t attempts);

  // It said nothing about the event itself, which is tried once more.
  void Retry(delivery::Sequence sequence, const delivery::Failure& failure, std::uint32_t attempts);

  // For the log.
  ConcernedEvent Concerned(const delivery::Tracker::Entry& entry) const;

  // The event's key is parked: it becomes a letter, too.
  void Follow(delivery::Sequence sequence);

  // Inside its transaction. Nothing = decided.
  std::optional<Halt> DecideUnfit(const UnfitEvent& unfit);

  // For the log, once each.
  std::optional<Decision> TakeDecision();

 private:
  Halt UndeliverableEvent(const delivery::Tracker::Entry& entry,
                          const envelope::Letter& letter) const;
  Halt LetterRefused(const delivery::Tracker::Entry& entry, const delivery::Failure& failure) const;
  std::optional<Halt> Place(const std::optional<std::string_view>& key, delivery::Sequence sequence,
                            envelope::Letter* letter);
  envelope::Letter LetterOf(const delivery::Tracker::Entry& entry) const;
  std::string PositionOf(base::Lsn commit_lsn, std::uint32_t ordinal) const;
  void Tell(Decision::Kind kind, const envelope::Letter& letter,
            const std::optional<std::string_view>& key);

  const OnUndeliverable policy_;
  const std::string pipeline_;
  const std::string topic_;  // for letters
  delivery::Tracker* const tracker_;
  Counters* const counters_;
  ParkingLot* const lot_;
  const envelope::SchemaTable* const schemas_;
  base::SourceFacts facts_;
  std::deque<Decision> untold_;
  std::uint64_t not_told_ = 0;
};

}  // namespace walpost::pipeline
