#include "pipeline/undeliverables.h"

#include <glog/logging.h>

#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "envelope/control_records.h"
#include "outbox/topic_rules.h"

namespace walpost::pipeline {

using base::DeadLetter;
using base::HaltReason;
using delivery::Failure;
using delivery::FailureKind;
using delivery::Tracker;

namespace {

// What messages may take of the table of dead letters: a quarter.
constexpr std::uint64_t kMessagesPart = 4;

// Stable: operators search for it.
const char* ReasonCode(FailureKind kind) {
  switch (kind) {
    case FailureKind::kRecordTooLarge:
      return "record_too_large";
    case FailureKind::kRecordInvalid:
      return "record_invalid";
    case FailureKind::kTopicUnknown:
      return "topic_unknown";
    case FailureKind::kPartitionUnknown:
      return "partition_unknown";
    case FailureKind::kTopicInvalid:
      return "topic_invalid";
    case FailureKind::kTopicNotAuthorized:
      return "topic_not_authorized";
    case FailureKind::kSchemaRejected:
      return "schema_rejected";
    case FailureKind::kNone:
    case FailureKind::kSessionEnded:
    case FailureKind::kOther:
      break;
  }
  return "rejected";
}

Tracker::Form FormOf(const DeadLetter& row) {
  return row.parked ? Tracker::Form::kParked : Tracker::Form::kDeadLetter;
}

// Who writes events chooses how long it is. The table cuts it, between two characters.
std::string Short(std::string_view text) {
  constexpr std::size_t kCharacterBytesMax = 4;
  return std::string(text.substr(0, DeadLetter::kTextBytesMax + kCharacterBytesMax));
}

// Without a record.
std::size_t BytesOf(const DeadLetter& row) {
  return sizeof(row) + row.position.size() + row.event_id.size() + row.event_type.size() +
         row.source.size() + row.topic.size() + row.schema.size() + row.reason.size() +
         row.detail.size();
}

EventReference EventOf(const DeadLetter& row, const std::optional<std::string_view>& key) {
  EventReference event;
  event.id = row.event_id;
  event.type = row.event_type;
  if (key) {
    event.key = std::string(key->substr(0, EventReference::kKeyBytesMax));
  }
  event.table = row.source;
  event.topic = row.topic;
  event.position = row.position;
  event.reason = row.reason;
  event.attempts = row.attempts;
  return event;
}

}  // namespace

Undeliverables::Undeliverables(const PipelineOptions& options, Tracker* tracker, Counters* counters,
                               DeadLetters* dead_letters, const envelope::SchemaTable* schemas)
    : policy_(options.on_undeliverable),
      messages_halt_(options.messages.halts || options.messages.prefixes.empty()),
      first_message_(options.outboxes.size()),
      tracker_(tracker),
      counters_(counters),
      dead_letters_(dead_letters),
      schemas_(schemas) {}

std::optional<Halt> Undeliverables::Decide(delivery::Sequence sequence, const Failure& failure,
                                           std::uint32_t attempts) {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  CHECK(entry.form == Tracker::Form::kEvent);
  DeadLetter row = Describe(entry);
  row.reason = ReasonCode(failure.kind);
  row.detail = failure.detail;
  row.attempts = attempts;
  counters_->events_failed.Add(row.topic, row.reason);
  if (PolicyOf(entry.table) == OnUndeliverable::kHalt) {
    return UndeliverableHalt(entry, row);
  }
  if (PolicyOf(entry.table) == OnUndeliverable::kSkip) {
    Skip(sequence, row);
    return std::nullopt;
  }
  if (std::optional<Halt> halt = Place(entry.table, entry.record.key, sequence, &row)) {
    return halt;
  }
  tracker_->SetForm(sequence, FormOf(row));
  Know(sequence, std::move(row));
  return std::nullopt;
}

bool Undeliverables::StopsNobody(std::uint32_t table) const {
  return table >= first_message_ && !messages_halt_;
}

OnUndeliverable Undeliverables::PolicyOf(std::uint32_t table) const {
  if (!StopsNobody(table)) {
    return policy_;
  }
  if (policy_ == OnUndeliverable::kHalt || dead_letters_->Fills(kMessagesPart)) {
    return OnUndeliverable::kSkip;
  }
  return policy_ == OnUndeliverable::kPark ? OnUndeliverable::kDeadLetter : policy_;
}

void Undeliverables::Skip(delivery::Sequence sequence, const DeadLetter& row) {
  ++counters_->events_skipped;
  Report(Decision::Kind::kSkipped, row, tracker_->entry(sequence).record.key);
  tracker_->Settle(sequence);
}

void Undeliverables::Retry(delivery::Sequence sequence, const Failure& failure,
                           std::uint32_t attempts) {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  DeadLetter row = Describe(entry);
  row.reason = ReasonCode(failure.kind);
  row.detail = failure.detail;
  row.attempts = attempts;
  Report(Decision::Kind::kRetried, row, entry.record.key);
}

EventReference Undeliverables::Reference(delivery::Sequence sequence) const {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  const auto known = known_.find(sequence);
  return EventOf(known == known_.end() ? Describe(entry) : known->second, entry.record.key);
}

std::optional<Halt> Undeliverables::Follow(delivery::Sequence sequence) {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  const bool skip = StopsNobody(entry.table) && dead_letters_->Fills(kMessagesPart);
  if (skip || dead_letters_->full()) {
    DeadLetter row = Describe(entry);
    row.reason = envelope::kKeyParked;
    row.detail = "its key is parked";
    if (!skip) {
      return Full(row, entry.record.key);
    }
    counters_->events_failed.Add(row.topic, row.reason);
    Skip(sequence, row);
    return std::nullopt;
  }
  dead_letters_->Add(sequence, entry.record.topic, *entry.record.key, /*follows=*/true);
  tracker_->SetForm(sequence, Tracker::Form::kParked);
  return std::nullopt;
}

void Undeliverables::GiveBack(delivery::Sequence sequence) {
  tracker_->SetForm(sequence, Tracker::Form::kEvent);
}

std::optional<Halt> Undeliverables::Full(const DeadLetter& row,
                                         const std::optional<std::string_view>& key) const {
  return Halt{HaltReason::kDeadLetterFailed,
              absl::StrFormat(
                  "event %s of %s at %s cannot be delivered (%s) and not become a "
                  "dead letter either: delivery.dead_letters_max, %u of them, are open; "
                  "decide about some (docs/dead-letters.md), or raise it; see "
                  "docs/runbook.md, dead_letter_failed",
                  row.event_id, row.source, row.position, row.detail, dead_letters_->open_rows()),
              EventOf(row, key)};
}

// Adds the row to the dead letters, and its key to the parked ones where that is the policy.
// Reports it.
std::optional<Halt> Undeliverables::Place(std::uint32_t table,
                                          const std::optional<std::string_view>& key,
                                          delivery::Sequence sequence, DeadLetter* row) {
  if (dead_letters_->full()) {
    return Full(*row, key);
  }
  // Where it may not go, nothing can overtake it, and it must hold up nobody: who writes events
  // chooses topics.
  const bool has_order =
      !StopsNobody(table) && key && key->size() <= DeadLetter::kParkedKeyBytesMax &&
      outbox::IsLegalTopic(row->topic) && dead_letters_->destinations().Allow(table, row->topic);
  row->parked = has_order && (PolicyOf(table) == OnUndeliverable::kPark ||
                              dead_letters_->IsParked(row->topic, *key));
  if (row->parked) {
    dead_letters_->Add(sequence, row->topic, *key);
  } else {
    dead_letters_->Add(sequence);
  }
  Report(row->parked ? Decision::Kind::kParked : Decision::Kind::kDeadLettered, *row, key);
  return std::nullopt;
}

std::optional<Halt> Undeliverables::DecideUndeliverable(const UndeliverableEvent& undeliverable) {
  const outbox::Event& event = *undeliverable.event;
  auto& [table, received] = counters_->received_by_table[undeliverable.table];
  DeadLetter row;
  row.topic = Short(event.topic);
  row.source = table;
  row.event_id = Short(event.id);
  row.event_type = Short(event.type);
  row.position = PositionOf(undeliverable.commit_lsn, undeliverable.ordinal);
  row.reason = undeliverable.reason;
  row.detail = undeliverable.detail;
  row.partition = event.partition;
  if (!undeliverable.content) {
    row.truncated_bytes = undeliverable.bytes;
  }
  counters_->events_failed.Add(row.topic, row.reason);
  if (PolicyOf(undeliverable.table) == OnUndeliverable::kHalt) {
    return Halt{HaltReason::kUndeliverableEvent, row.detail, EventOf(row, event.key)};
  }
  if (PolicyOf(undeliverable.table) == OnUndeliverable::kSkip) {
    ++counters_->events_received;
    ++received;
    ++counters_->events_skipped;
    Report(Decision::Kind::kSkipped, row, event.key);
    return std::nullopt;
  }
  const delivery::Sequence sequence = tracker_->next_sequence();
  if (std::optional<Halt> halt = Place(undeliverable.table, event.key, sequence, &row)) {
    return halt;
  }
  ++counters_->events_received;
  ++received;
  envelope::Record record;
  if (row.parked) {
    record.topic = event.topic;  // other rows of the key wait for those before them
  }
  record.key = event.key;
  record.value = undeliverable.content;
  std::optional<std::string> kept;
  if (undeliverable.row) {
    kept = outbox::KeepRow(*undeliverable.row);
    record.value = kept;
  }
  tracker_->Add(WithRoom(record, tracker_->arena()), undeliverable.ordinal,
                undeliverable.commit_time, undeliverable.table, FormOf(row));
  Know(sequence, std::move(row));
  return std::nullopt;
}

void Undeliverables::Know(delivery::Sequence sequence, DeadLetter row) {
  row.detail = Short(row.detail);
  known_bytes_ += BytesOf(row);
  CHECK(known_.emplace(sequence, std::move(row)).second);
}

DeadLetter Undeliverables::RowOf(delivery::Sequence sequence) const {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  const auto known = known_.find(sequence);
  DeadLetter row = known == known_.end() ? Describe(entry) : known->second;
  if (known == known_.end()) {
    row.parked = true;
    row.reason = envelope::kKeyParked;
  }
  TakeRecord(entry.record, &row);
  return row;
}

void Undeliverables::OnWritten(delivery::Sequence sequence) {
  const bool parked = tracker_->entry(sequence).form == Tracker::Form::kParked;
  ++(parked ? counters_->events_parked : counters_->events_dead_lettered);
  if (const auto known = known_.find(sequence); known != known_.end()) {
    known_bytes_ -= BytesOf(known->second);
    known_.erase(known);
  }
  tracker_->Settle(sequence);
}

std::optional<Decision> Undeliverables::TakeDecision() {
  if (unreported_.empty()) {
    return std::nullopt;
  }
  Decision decision = std::move(unreported_.front());
  unreported_.pop_front();
  return decision;
}

Halt Undeliverables::UndeliverableHalt(const Tracker::Entry& entry, const DeadLetter& row) const {
  return Halt{HaltReason::kUndeliverableEvent,
              absl::StrFormat("event %s of %s (%s%s a key) for topic %s, commit LSN %s, ordinal "
                              "%u, cannot be delivered: %s",
                              row.event_id.empty() ? "without id" : row.event_id, row.source,
                              row.event_type.empty() ? "" : "type " + row.event_type + ", ",
                              entry.record.key ? "with" : "without", row.topic,
                              entry.commit_lsn.ToString(), entry.ordinal, row.detail),
              EventOf(row, entry.record.key)};
}

// What is known of an event; without the record.
DeadLetter Undeliverables::Describe(const Tracker::Entry& entry) const {
  DeadLetter row;
  row.topic = entry.record.topic;
  row.source = counters_->received_by_table[entry.table].first;
  row.event_id = Short(HeaderOf(entry.record, "id"));
  row.event_type = Short(HeaderOf(entry.record, "type"));
  row.position = PositionOf(entry.commit_lsn, entry.ordinal);
  row.partition = entry.record.partition;
  row.event_time_ms = entry.record.timestamp_ms;
  if (entry.record.schema != 0) {
    row.schema = envelope::NeedAsText(schemas_->entry(entry.record.schema).need);
  }
  return row;
}

std::string Undeliverables::PositionOf(base::Lsn commit_lsn, std::uint32_t ordinal) const {
  return envelope::Position{facts_.system_identifier, facts_.TimelineOf(commit_lsn), commit_lsn,
                            ordinal}
      .ToString();
}

void Undeliverables::Report(Decision::Kind kind, const DeadLetter& row,
                            const std::optional<std::string_view>& key) {
  if (unreported_.size() >= kUnreportedMax) {
    ++not_reported_;
    return;
  }
  unreported_.push_back(
      Decision{kind, EventOf(row, key), row.detail, std::exchange(not_reported_, 0)});
}

}  // namespace walpost::pipeline
