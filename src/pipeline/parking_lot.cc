// The table of parked keys, and what the log says; releases are in parking_lot_release.cc.
#include "pipeline/parking_lot.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace walpost::pipeline {

using envelope::LetterAction;
using envelope::LetterKind;
using envelope::LoggedLetter;

ParkingLot::ParkingLot(const PipelineOptions& options, const delivery::Tracker* tracker,
                       envelope::SchemaTable* schemas)
    : on_(options.on_undeliverable == OnUndeliverable::kDeadLetter ||
          options.on_undeliverable == OnUndeliverable::kPark),
      pipeline_(options.name),
      topic_(options.dead_letter_topic),
      keys_max_(options.park_keys_max),
      tracker_(tracker),
      schemas_(schemas) {
  for (const OutboxOptions& outbox : options.outboxes) {
    tables_.push_back(outbox.table.schema + "." + outbox.table.table);
  }
}

void ParkingLot::OnConnected() {
  ready_ = false;
  at_end_ = false;
  reading_ = false;
  ++read_id_;  // a read under way began before
  read_at_ = base::MonotonicTime();
}

void ParkingLot::Forget() {
  CHECK(sending_ != Sending::kOutstanding);
  Drop();
  release_.reset();
  keys_.clear();
  commands_.clear();
  next_offset_ = 0;
  OnConnected();
}

const std::string& ParkingLot::IdOf(std::string_view topic, std::string_view key) const {
  id_.assign(topic);
  id_.push_back('\0');
  id_.append(key);
  return id_;
}

bool ParkingLot::IsParked(std::string_view topic, std::string_view key) const {
  return !keys_.empty() && keys_.contains(IdOf(topic, key));
}

bool ParkingLot::Follows(std::string_view topic, std::string_view key,
                         delivery::Sequence sequence) const {
  const auto found = keys_.empty() ? keys_.end() : keys_.find(IdOf(topic, key));
  return found != keys_.end() && sequence >= found->second.first_sequence;
}

bool ParkingLot::IsHeld(std::string_view topic, std::string_view key) const {
  return release_ && release_->held && release_->command.topic == topic &&
         release_->command.key == key;
}

void ParkingLot::Park(std::string_view topic, std::string_view key, std::string_view position,
                      delivery::Sequence sequence) {
  const auto [found, added] = keys_.try_emplace(IdOf(topic, key));
  ParkedKey& parked = found->second;
  if (added) {
    parked.topic = topic;
    parked.key = key;
    parked.first_offset = next_offset_;  // its letter will stand there or later
    parked.first_sequence = sequence;
    settle_below_ = std::max(settle_below_, sequence);
    read_at_ = base::MonotonicTime();
  }
  parked.first_sequence = std::min(parked.first_sequence, sequence);
  parked.last_written = std::max(parked.last_written, std::string(position));
}

std::optional<LetterRead> ParkingLot::TakeRead(base::Now now) {
  if (!on_ || reading_ || now.mono < read_at_) {
    return std::nullopt;
  }
  const bool for_release = release_ && release_->phase == Release::Phase::kReading && at_end_;
  if (ready_ && keys_.empty() && !release_) {
    return std::nullopt;  // nothing can be asked for
  }
  reading_ = true;
  reading_for_release_ = for_release;
  LetterRead read;
  read.id = ++read_id_;
  read.from_offset = for_release ? release_->cursor : next_offset_;
  if (for_release) {
    read.topic = release_->command.topic;
    read.key = release_->command.key;
  }
  return read;
}

std::optional<Halt> ParkingLot::OnRead(LettersRead read, base::Now now) {
  if (!reading_ || read.id != read_id_) {
    return std::nullopt;
  }
  reading_ = false;
  if (absl::IsUnavailable(read.status)) {
    read_at_ = now.mono + kRetryReadAfter;
    return std::nullopt;
  }
  if (!read.status.ok()) {
    return Halt{base::HaltReason::kDeadLetterFailed,
                absl::StrFormat("the dead-letter topic, which tells what keys are parked, cannot "
                                "be read: %s; see docs/runbook.md, dead_letter_failed",
                                std::string(read.status.message()))};
  }
  if (reading_for_release_) {
    release_->cursor = read.next_offset;
    TakeForRelease(std::move(read.letters));
  } else {
    next_offset_ = read.next_offset;
    for (const LoggedLetter& logged : read.letters) {
      Take(logged);
    }
    at_end_ = read.at_end;
    ready_ = ready_ || at_end_;
  }
  read_at_ = now.mono + (read.at_end ? kReadEvery : std::chrono::milliseconds(0));
  Tick(now);
  // What is looked for is on its way.
  const bool soon = release_ && (reading_for_release_ ? release_->phase == Release::Phase::kReading
                                                      : release_->phase == Release::Phase::kSeeing);
  if (soon && read.at_end) {
    read_at_ = now.mono + kReadAgainAfter;
  }
  if (release_ && release_->phase == Release::Phase::kReading && !reading_for_release_) {
    read_at_ = now.mono;  // its turn
  }
  return std::nullopt;
}

void ParkingLot::Take(const LoggedLetter& logged) {
  switch (logged.letter.kind) {
    case LetterKind::kLetter:
      return;
    case LetterKind::kParked:
      TakeParked(logged);
      return;
    case LetterKind::kCommand:
      TakeCommand(logged);
      return;
    case LetterKind::kDecision:
      TakeDecision(logged);
      return;
  }
}

void ParkingLot::TakeParked(const LoggedLetter& logged) {
  if (!logged.key) {
    return;
  }
  const auto [found, added] = keys_.try_emplace(IdOf(logged.letter.topic, *logged.key));
  ParkedKey& parked = found->second;
  if (added) {
    parked.topic = logged.letter.topic;
    parked.key = *logged.key;
    parked.first_offset = logged.offset;
    settle_below_ = std::max(settle_below_, tracker_->next_sequence());
  }
  // The same position again is the same event, parked again after a crash.
  parked.last_read = std::max(parked.last_read, logged.letter.position);
}

void ParkingLot::TakeCommand(const LoggedLetter& logged) {
  if (!logged.key) {
    return;
  }
  commands_[logged.offset] =
      Command{logged.offset,       logged.letter.action, IdOf(logged.letter.topic, *logged.key),
              logged.letter.topic, *logged.key,          logged.letter.position};
}

void ParkingLot::TakeDecision(const LoggedLetter& logged) {
  const envelope::Letter& letter = logged.letter;
  if (letter.answers) {
    commands_.erase(*letter.answers);
    if (release_ && release_->command.offset == *letter.answers) {
      EndRelease();
    }
  }
  const auto found = logged.key ? keys_.find(IdOf(letter.topic, *logged.key)) : keys_.end();
  if (letter.action == LetterAction::kFailed || found == keys_.end()) {
    return;
  }
  ParkedKey& parked = found->second;
  if (!letter.through.empty()) {
    if (parked.last() <= letter.through) {
      keys_.erase(found);
    } else {
      parked.decided_through = std::max(parked.decided_through, letter.through);
    }
  } else {
    parked.discarded.insert(letter.position);
  }
}

}  // namespace walpost::pipeline
