// Undeliverables - what becomes of an event that cannot be delivered: `delivery.on_undeliverable`.
// Why: one bad event must not stop the rest unless that is wanted, and must never vanish: it counts
//   as settled only when its row is in walpost.dead_letters, or when `skip` counted it.
// How: the event stays in its place in the tracker, as a dead letter, until the row is committed.
// Thread: loop thread.   Lifetime: the pointers must outlive it.
// Source: docs/dead-letters.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/dead_letter.h"
#include "base/source_facts.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "envelope/control_records.h"
#include "envelope/schema.h"
#include "outbox/event.h"
#include "outbox/kept_row.h"
#include "pipeline/counters.h"
#include "pipeline/dead_letters.h"
#include "pipeline/halt.h"
#include "pipeline/options.h"

namespace walpost::pipeline {

// For the log: what was decided without an operator.
struct Decision {
  enum class Kind { kSkipped, kDeadLettered, kParked, kRetried };

  Kind kind = Kind::kSkipped;
  EventReference event;
  std::string detail;
  std::uint64_t not_reported = 0;  // decisions before this one that were too many to report
};

// A row or message that never became a record.
struct UndeliverableEvent {
  const outbox::Event* event = nullptr;     // as far as it was understood
  std::optional<std::string_view> content;  // of a message, which stands in no table
  std::optional<outbox::StreamedRow> row;   // which its table may not have for long
  std::uint64_t bytes = 0;
  base::Lsn commit_lsn;
  std::uint32_t ordinal = 0;
  base::WallTime commit_time;
  std::uint32_t table = 0;  // index into Counters::received_by_table
  std::string detail;
  std::string reason;  // a word of outbox/event.h
};

class Undeliverables {
 public:
  // Decisions waiting to be reported; more are only counted.
  static constexpr std::size_t kUnreportedMax = 100;

  // `schemas` may be null where nothing is framed.
  Undeliverables(const PipelineOptions& options, delivery::Tracker* tracker, Counters* counters,
                 DeadLetters* dead_letters, const envelope::SchemaTable* schemas = nullptr);

  void OnConnected(const base::SourceFacts& facts) { facts_ = facts; }

  // No sink holds the record. Nothing = decided: its entry is settled, or waits to become a row.
  std::optional<Halt> Decide(delivery::Sequence sequence, const delivery::Failure& failure,
                             std::uint32_t attempts);

  DeadLetters* dead_letters() const { return dead_letters_; }

  // It said nothing about the event itself, which is tried once more.
  void Retry(delivery::Sequence sequence, const delivery::Failure& failure, std::uint32_t attempts);

  // For the log.
  EventReference Reference(delivery::Sequence sequence) const;

  // The event's key is parked: it becomes a row, too. Nothing = decided.
  std::optional<Halt> Follow(delivery::Sequence sequence);

  // It is not parked after all, and is to be offered again.
  void GiveBack(delivery::Sequence sequence);

  // Of a dead letter that is to be written.
  base::DeadLetter RowOf(delivery::Sequence sequence) const;
  // Its row is committed.
  void OnWritten(delivery::Sequence sequence);

  // The tracker gave up everything.
  void Forget() {
    known_.clear();
    known_bytes_ = 0;
  }

  // Of what is held beside the tracker's records until it is written.
  std::size_t retained_bytes() const { return known_bytes_; }

  // Inside its transaction. Nothing = decided.
  std::optional<Halt> DecideUndeliverable(const UndeliverableEvent& undeliverable);

  // For the log, once each.
  std::optional<Decision> TakeDecision();

 private:
  OnUndeliverable PolicyOf(std::uint32_t table) const;
  // A message, unless they count as much as rows do: it stops no other event.
  bool StopsNobody(std::uint32_t table) const;
  void Skip(delivery::Sequence sequence, const base::DeadLetter& row);
  Halt UndeliverableHalt(const delivery::Tracker::Entry& entry, const base::DeadLetter& row) const;
  std::optional<Halt> Full(const base::DeadLetter& row,
                           const std::optional<std::string_view>& key) const;
  std::optional<Halt> Place(std::uint32_t table, const std::optional<std::string_view>& key,
                            delivery::Sequence sequence, base::DeadLetter* row);
  void Know(delivery::Sequence sequence, base::DeadLetter row);
  base::DeadLetter Describe(const delivery::Tracker::Entry& entry) const;
  std::string PositionOf(base::Lsn commit_lsn, std::uint32_t ordinal) const;
  void Report(Decision::Kind kind, const base::DeadLetter& row,
              const std::optional<std::string_view>& key);

  const OnUndeliverable policy_;
  const bool messages_halt_;
  const std::size_t first_message_;  // of received_by_table
  delivery::Tracker* const tracker_;
  Counters* const counters_;
  DeadLetters* const dead_letters_;
  const envelope::SchemaTable* const schemas_;
  base::SourceFacts facts_;
  std::map<delivery::Sequence, base::DeadLetter> known_;  // of dead letters, but for the record
  std::size_t known_bytes_ = 0;
  std::deque<Decision> unreported_;
  std::uint64_t not_reported_ = 0;
};

}  // namespace walpost::pipeline
