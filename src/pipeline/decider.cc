#include "pipeline/decider.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace walpost::pipeline {

using base::HaltReason;
using delivery::Failure;
using delivery::FailureKind;
using delivery::Tracker;
using envelope::Letter;
using envelope::LetterKind;

namespace {

constexpr const char* kKeyParked = "key_parked";

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
    case FailureKind::kSchemaRefused:
      return "schema_refused";
    case FailureKind::kNone:
    case FailureKind::kGenerationEnded:
    case FailureKind::kOther:
      break;
  }
  return "refused";
}

// With less in it the letter may be taken.
bool StubMayHelp(FailureKind kind) {
  return kind == FailureKind::kRecordTooLarge || kind == FailureKind::kRecordInvalid ||
         kind == FailureKind::kOther;
}

Tracker::Form FormOf(const Letter& letter) {
  return letter.kind == LetterKind::kParked ? Tracker::Form::kParked : Tracker::Form::kLetter;
}

ConcernedEvent EventOf(const Letter& letter, const std::optional<std::string_view>& key) {
  ConcernedEvent event;
  event.id = letter.id;
  event.type = letter.type;
  if (key) {
    event.key = std::string(key->substr(0, ConcernedEvent::kKeyBytesMax));
  }
  event.table = letter.table;
  event.topic = letter.topic;
  event.position = letter.position;
  event.reason = letter.reason;
  event.attempts = letter.attempts;
  return event;
}

}  // namespace

Decider::Decider(const PipelineOptions& options, Tracker* tracker, Counters* counters,
                 ParkingLot* lot, const envelope::SchemaTable* schemas)
    : policy_(options.on_undeliverable),
      pipeline_(options.name),
      topic_(options.dead_letter_topic),
      tracker_(tracker),
      counters_(counters),
      lot_(lot),
      schemas_(schemas) {}

std::optional<Halt> Decider::Decide(delivery::Sequence sequence, const Failure& failure,
                                    std::uint32_t attempts) {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  if (entry.form != Tracker::Form::kEvent) {
    if (entry.stub || !StubMayHelp(failure.kind)) {
      return LetterRefused(entry, failure);
    }
    // Its headers say all that is known of it.
    Letter letter = **envelope::ParseLetter(entry.record.headers);
    letter.left_out_bytes = entry.record.AccountedBytes();
    letter.detail += "; the dead-letter topic does not take it either: " + failure.detail;
    tracker_->Replace(sequence, EncodeLetter(letter, topic_, entry.record, tracker_->arena()),
                      entry.form,
                      /*stub=*/true);
    return std::nullopt;
  }
  Letter letter = LetterOf(entry);
  letter.reason = ReasonCode(failure.kind);
  letter.detail = failure.detail;
  letter.attempts = attempts;
  counters_->events_failed.Add(letter.topic, letter.reason);
  if (policy_ == OnUndeliverable::kHalt) {
    return UndeliverableEvent(entry, letter);
  }
  if (policy_ == OnUndeliverable::kSkip) {
    ++counters_->events_skipped;
    Tell(Decision::Kind::kSkipped, letter, entry.record.key);
    tracker_->Settle(sequence);
    return std::nullopt;
  }
  if (std::optional<Halt> halt = Place(entry.record.key, sequence, &letter)) {
    return halt;
  }
  tracker_->Replace(sequence, EncodeLetter(letter, topic_, entry.record, tracker_->arena()),
                    FormOf(letter), /*stub=*/false);
  return std::nullopt;
}

void Decider::Retry(delivery::Sequence sequence, const Failure& failure, std::uint32_t attempts) {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  if (entry.form != Tracker::Form::kEvent) {
    return;  // a letter of an event that was told of
  }
  Letter letter = LetterOf(entry);
  letter.reason = ReasonCode(failure.kind);
  letter.detail = failure.detail;
  letter.attempts = attempts;
  Tell(Decision::Kind::kRetried, letter, entry.record.key);
}

ConcernedEvent Decider::Concerned(const Tracker::Entry& entry) const {
  return EventOf(LetterOf(entry), entry.record.key);
}

void Decider::Follow(delivery::Sequence sequence) {
  const Tracker::Entry& entry = tracker_->entry(sequence);
  Letter letter = LetterOf(entry);
  letter.kind = LetterKind::kParked;
  letter.reason = kKeyParked;
  lot_->Park(letter.topic, *entry.record.key, letter.position, sequence);
  tracker_->Replace(sequence, EncodeLetter(letter, topic_, entry.record, tracker_->arena()),
                    Tracker::Form::kParked, /*stub=*/false);
}

// Among the letters, or with its key among the parked ones; and tells of it.
std::optional<Halt> Decider::Place(const std::optional<std::string_view>& key,
                                   delivery::Sequence sequence, Letter* letter) {
  const bool has_order = key && !letter->topic.empty();
  const bool parked = has_order && lot_->IsParked(letter->topic, *key);
  if (has_order && (parked || policy_ == OnUndeliverable::kPark)) {
    if (!parked && lot_->full()) {
      return Halt{HaltReason::kDeadLetterFailed,
                  absl::StrFormat("event %s of %s at %s cannot be delivered (%s) and not be parked "
                                  "either: delivery.park_keys_max, %u keys, are parked; decide "
                                  "about some (docs/dead-letters.md), or raise it; see "
                                  "docs/runbook.md, dead_letter_failed",
                                  letter->id, letter->table, letter->position, letter->detail,
                                  lot_->size()),
                  EventOf(*letter, key)};
    }
    letter->kind = LetterKind::kParked;
    lot_->Park(letter->topic, *key, letter->position, sequence);
  }
  Tell(
      letter->kind == LetterKind::kParked ? Decision::Kind::kParked : Decision::Kind::kDeadLettered,
      *letter, key);
  return std::nullopt;
}

std::optional<Halt> Decider::DecideUnfit(const UnfitEvent& unfit) {
  const outbox::Event& event = *unfit.event;
  auto& [table, received] = counters_->received_by_table[unfit.table];
  Letter letter;
  letter.pipeline = pipeline_;
  letter.topic = event.topic;
  letter.table = table;
  letter.id = event.id;
  letter.type = event.type;
  letter.position = PositionOf(unfit.commit_lsn, unfit.ordinal);
  letter.reason = unfit.reason;
  letter.detail = unfit.detail;
  letter.partition = event.partition;
  if (!unfit.content) {
    letter.left_out_bytes = unfit.bytes;  // the row is in its table
  }
  counters_->events_failed.Add(letter.topic, letter.reason);
  if (policy_ == OnUndeliverable::kHalt) {
    return Halt{HaltReason::kUndeliverableEvent, letter.detail, EventOf(letter, event.key)};
  }
  if (policy_ == OnUndeliverable::kSkip) {
    ++counters_->events_received;
    ++received;
    ++counters_->events_skipped;
    Tell(Decision::Kind::kSkipped, letter, event.key);
    return std::nullopt;
  }
  if (std::optional<Halt> halt = Place(event.key, tracker_->next_sequence(), &letter)) {
    return halt;
  }
  ++counters_->events_received;
  ++received;
  envelope::Record record;
  record.key = event.key;
  record.value = unfit.content;
  tracker_->Add(EncodeLetter(letter, topic_, record, tracker_->arena()), unfit.ordinal,
                unfit.commit_time, 0, unfit.table, FormOf(letter), /*stub=*/!unfit.content);
  return std::nullopt;
}

std::optional<Decision> Decider::TakeDecision() {
  if (untold_.empty()) {
    return std::nullopt;
  }
  Decision decision = std::move(untold_.front());
  untold_.pop_front();
  return decision;
}

Halt Decider::UndeliverableEvent(const Tracker::Entry& entry, const Letter& letter) const {
  return Halt{HaltReason::kUndeliverableEvent,
              absl::StrFormat("event %s of %s (%s%s a key) for topic %s, commit LSN %s, ordinal "
                              "%u, cannot be delivered: %s",
                              letter.id.empty() ? "without id" : letter.id, letter.table,
                              letter.type.empty() ? "" : "type " + letter.type + ", ",
                              entry.record.key ? "with" : "without", letter.topic,
                              entry.commit_lsn.ToString(), entry.ordinal, letter.detail),
              EventOf(letter, entry.record.key)};
}

Halt Decider::LetterRefused(const Tracker::Entry& entry, const Failure& failure) const {
  // Its headers say all that is known of the event.
  const Letter letter = **envelope::ParseLetter(entry.record.headers);
  return Halt{HaltReason::kDeadLetterFailed,
              absl::StrFormat("the letter of event %s of %s, commit LSN %s, ordinal %u, cannot be "
                              "written to the dead-letter topic %s: %s; see docs/runbook.md, "
                              "dead_letter_failed",
                              letter.id, letter.table, entry.commit_lsn.ToString(), entry.ordinal,
                              topic_, failure.detail),
              EventOf(letter, entry.record.key)};
}

Letter Decider::LetterOf(const Tracker::Entry& entry) const {
  Letter letter;
  letter.pipeline = pipeline_;
  letter.topic = entry.record.topic;
  letter.table = counters_->received_by_table[entry.table].first;
  letter.id = HeaderOf(entry.record, "id");
  letter.type = HeaderOf(entry.record, "type");
  letter.position = PositionOf(entry.commit_lsn, entry.ordinal);
  letter.partition = entry.record.partition;
  letter.timestamp_ms = entry.record.timestamp_ms;
  if (entry.record.schema != 0) {
    letter.schema = envelope::NeedAsText(schemas_->entry(entry.record.schema).need);
  }
  return letter;
}

std::string Decider::PositionOf(base::Lsn commit_lsn, std::uint32_t ordinal) const {
  return envelope::Position{facts_.system_identifier, facts_.TimelineOf(commit_lsn), commit_lsn,
                            ordinal}
      .ToString();
}

void Decider::Tell(Decision::Kind kind, const Letter& letter,
                   const std::optional<std::string_view>& key) {
  if (untold_.size() >= kUntoldMax) {
    ++not_told_;
    return;
  }
  untold_.push_back(
      Decision{kind, EventOf(letter, key), letter.detail, std::exchange(not_told_, 0)});
}

}  // namespace walpost::pipeline
