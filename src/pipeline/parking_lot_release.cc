// How a parked key is released: its events are sent again in order, then a decision ends it.
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "outbox/message_mapper.h"
#include "pipeline/parking_lot.h"

namespace walpost::pipeline {

using envelope::Letter;
using envelope::LetterAction;
using envelope::LetterKind;
using envelope::LoggedLetter;

void ParkingLot::Tick(base::Now now) {
  if (now.mono >= retry_at_) {
    retry_at_ = base::MonotonicTime();  // the sink may take it any time; no deadline any more
  }
  if (!release_ && at_end_ && !commands_.empty()) {
    Begin(now);
  }
  if (release_ && release_->phase == Release::Phase::kSettling &&
      tracker_->oldest_unsettled() >= release_->settled_below) {
    release_->phase = Release::Phase::kReading;
    read_at_ = now.mono;
  }
}

void ParkingLot::Begin(base::Now now) {
  const Command& command = commands_.begin()->second;
  release_.emplace();
  release_->command = command;
  release_->settled_below = tracker_->next_sequence();
  const auto found = keys_.find(command.id);
  if (found == keys_.end()) {
    Answer(LetterAction::kFailed, "the key is not parked, or not any more");
    return;
  }
  release_->cursor = found->second.first_offset;
  if (command.action == LetterAction::kDiscard && !command.position.empty()) {
    found->second.discarded.insert(command.position);  // is it the last one?
  }
  read_at_ = now.mono;
}

// Null after saying that there is nothing to release any more.
ParkingLot::ParkedKey* ParkingLot::Releasing() {
  const auto found = keys_.find(release_->command.id);
  if (found == keys_.end()) {
    Answer(LetterAction::kFailed, "the key was released by somebody else meanwhile");
    return nullptr;
  }
  return &found->second;
}

void ParkingLot::TakeForRelease(std::vector<LoggedLetter> letters) {
  const ParkedKey* const parked = Releasing();
  if (parked == nullptr) {
    return;
  }
  for (LoggedLetter& logged : letters) {
    const std::string& position = logged.letter.position;
    const bool repeat =
        position <= release_->sent_through ||
        (!release_->events.empty() && position <= release_->events.back().letter.position);
    if (logged.letter.kind == LetterKind::kParked && !repeat &&
        logged.letter.topic == parked->topic && logged.key == parked->key) {
      release_->events.push_back(std::move(logged));
    }
  }
  SendNext();
}

// The next event that is still to be sent; or the end. A discard goes the same way without sending:
// decided before its letter stands in the log, an event would be parked behind the decision.
void ParkingLot::SendNext() {
  const ParkedKey* const parked = Releasing();
  if (parked == nullptr) {
    return;
  }
  const bool discard = release_->command.action == LetterAction::kDiscard;
  const bool discard_all = discard && release_->command.position.empty();
  while (!release_->events.empty()) {
    const std::string& position = release_->events.front().letter.position;
    if (!discard_all && position > parked->decided_through &&
        !parked->discarded.contains(position)) {
      break;
    }
    release_->sent_through = position;
    release_->events.pop_front();
  }
  if (release_->events.empty()) {
    if (release_->sent_through >= parked->last()) {
      Decide(discard ? LetterAction::kDiscarded : LetterAction::kDelivered);
    } else {
      release_->phase = Release::Phase::kReading;
      read_at_ = base::MonotonicTime();
    }
    return;
  }
  if (discard) {
    Answer(LetterAction::kDiscarded, "");  // others of the key remain
    return;
  }
  const LoggedLetter& next = release_->events.front();
  if (next.letter.left_out_bytes || next.letter.reason == envelope::kMessageMalformed) {
    Answer(
        LetterAction::kFailed,
        absl::StrFormat("event %s at %s is a stub, so it cannot be sent from here: discard it by "
                        "its id, then retry, and emit it anew",
                        next.letter.id, next.letter.position));
    return;
  }
  if (const auto need = envelope::ParseNeed(next.letter.schema);
      !next.letter.schema.empty() && !need.ok()) {
    Answer(LetterAction::kFailed,
           absl::StrFormat("event %s at %s: %s", next.letter.id, next.letter.position,
                           std::string(need.status().message())));
    return;
  }
  Prepare(next);
}

// What is sent are the event's own bytes; a schema it needs is looked up as for any other record.
void ParkingLot::Prepare(const LoggedLetter& next) {
  release_->phase = Release::Phase::kSending;
  record_ = envelope::Record();
  record_.topic = next.letter.topic;
  record_.key = *next.key;
  if (next.value) {
    record_.value = *next.value;
  }
  std::vector<envelope::RecordHeader> own;
  for (const auto& [name, value] : next.headers) {
    own.push_back({name, value});
  }
  headers_ = envelope::RedeliveryHeaders(own, "dlq-retry", next.letter.position);
  record_.headers = headers_;
  record_.partition = next.letter.partition;
  record_.timestamp_ms = next.letter.timestamp_ms;
  if (!next.letter.schema.empty() && next.value) {
    envelope::SchemaNeed need = *envelope::ParseNeed(next.letter.schema);
    need.source = SourceOf(next.letter.table);
    record_ = WithRoom(record_, &arena_);
    record_.schema = schemas_->RefOf(need);
    schemas_->Forget(record_.schema);  // an operator asks, so it may have been mended
  }
  ++sequence_;
  sending_ = Sending::kWaiting;
  needs_verdict_ = refused_ = false;
  retry_at_ = base::MonotonicTime();
}

std::uint32_t ParkingLot::SourceOf(const std::string& table) const {
  if (outbox::IsMessageLabel(table)) {
    return static_cast<std::uint32_t>(tables_.size());
  }
  const auto found = std::find(tables_.begin(), tables_.end(), table);
  return found == tables_.end() ? envelope::SchemaNeed::kNoSource
                                : static_cast<std::uint32_t>(found - tables_.begin());
}

// About the whole key. Until it has been read no event of the key may pass.
void ParkingLot::Decide(LetterAction action) {
  const ParkedKey& parked = keys_.find(release_->command.id)->second;
  Letter letter;
  letter.kind = LetterKind::kDecision;
  letter.action = action;
  letter.through = parked.last();
  release_->phase = Release::Phase::kDeciding;
  release_->held = true;
  Write(letter);
}

void ParkingLot::Answer(LetterAction action, const std::string& detail) {
  Letter letter;
  letter.kind = LetterKind::kDecision;
  letter.action = action;
  letter.detail = detail;
  letter.position = release_->command.position;
  release_->phase = Release::Phase::kAnswering;
  release_->events.clear();
  Write(letter);
}

void ParkingLot::Write(const Letter& half) {
  Letter letter = half;
  letter.pipeline = pipeline_;
  letter.topic = release_->command.topic;
  letter.answers = release_->command.offset;
  envelope::Record event;
  event.key = release_->command.key;
  record_ = EncodeLetter(letter, topic_, event, &arena_);
  ++sequence_;
  sending_ = Sending::kWaiting;
  needs_verdict_ = refused_ = false;
  retry_at_ = base::MonotonicTime();
}

const envelope::Record* ParkingLot::waiting(base::Now now) const {
  return sending_ == Sending::kWaiting && now.mono >= retry_at_ ? &record_ : nullptr;
}

void ParkingLot::OnAcknowledged() {
  CHECK(sending_ == Sending::kOutstanding);
  Drop();
  if (release_->over) {
    EndRelease();
    return;
  }
  if (release_->phase != Release::Phase::kSending) {
    release_->phase = Release::Phase::kSeeing;
    read_at_ = base::MonotonicTime();
    return;
  }
  release_->sent_through = release_->events.front().letter.position;
  release_->events.pop_front();
  SendNext();
}

void ParkingLot::OnRefused(const delivery::Failure& failure, bool alone, base::Now now) {
  sending_ = Sending::kWaiting;
  if (release_->over) {
    EndRelease();
    return;
  }
  if (release_->phase == Release::Phase::kSending && alone && std::exchange(refused_, true)) {
    const std::string position = release_->events.front().letter.position;
    Drop();
    Answer(LetterAction::kFailed, absl::StrFormat("the event at %s cannot be delivered yet: %s",
                                                  position, failure.detail));
    return;
  }
  needs_verdict_ = !alone;
  if (alone) {
    // An event once, since what is known of its topic may be old; a decision without end.
    retry_at_ = now.mono + kRetryRefusedAfter;
  }
}

void ParkingLot::OnLost() {
  if (sending_ == Sending::kOutstanding) {
    sending_ = Sending::kWaiting;
  }
  if (release_ && release_->over) {
    EndRelease();
  }
}

// A producer may still hold its record: then what becomes of that ends it.
void ParkingLot::EndRelease() {
  release_->over = true;
  if (sending_ != Sending::kOutstanding) {
    Drop();
    release_.reset();
  }
}

// The record is not needed any more.
void ParkingLot::Drop() {
  if (record_.block.chunk != nullptr) {
    arena_.Release(record_.block);
  }
  record_ = envelope::Record();
  sending_ = Sending::kNone;
  needs_verdict_ = false;
}

std::optional<base::MonotonicTime> ParkingLot::NextDeadline() const {
  std::optional<base::MonotonicTime> deadline;
  if (sending_ == Sending::kWaiting && retry_at_ != base::MonotonicTime()) {
    deadline = retry_at_;
  }
  if (on_ && !reading_ && (!ready_ || !keys_.empty() || release_)) {
    deadline = deadline ? std::min(*deadline, read_at_) : read_at_;
  }
  return deadline;
}

}  // namespace walpost::pipeline
