#include <algorithm>

#include "absl/strings/str_format.h"
#include "envelope/control_records.h"
#include "pipeline/dead_letters.h"

namespace walpost::pipeline {

envelope::Position DeadLetters::PositionOf(delivery::Sequence sequence) const {
  const delivery::Tracker::Entry& entry = tracker_->entry(sequence);
  return {facts_.system_identifier, facts_.TimelineOf(entry.commit_lsn), entry.commit_lsn,
          entry.ordinal};
}

ParkedKey& DeadLetters::Key(std::string_view topic, std::string_view key) {
  const auto [found, added] = keys_.try_emplace(base::ParkedKeyIdOf(topic, key));
  if (added) {
    found->second.seen = true;
    found->second.settle_below = tracker_->next_sequence();
  }
  return found->second;
}

bool DeadLetters::IsParked(std::string_view topic, std::string_view key) const {
  return !keys_.empty() && keys_.contains(base::ParkedKeyIdOf(topic, key));
}

// What was before the key's rows when they were parked goes before them when it comes again, too.
bool DeadLetters::Follows(std::string_view topic, std::string_view key,
                          delivery::Sequence sequence) const {
  const auto found = keys_.empty() ? keys_.end() : keys_.find(base::ParkedKeyIdOf(topic, key));
  return found != keys_.end() &&
         (sequence >= found->second.first_sequence ||
          (found->second.open_from && PositionOf(sequence) >= *found->second.open_from));
}

bool DeadLetters::IsHeld(std::string_view topic, std::string_view key,
                         delivery::Sequence sequence) const {
  return release_ && release_->held && !release_->stalled && sequence >= release_->settled_below &&
         release_->decision.topic == topic && release_->decision.key == key;
}

void DeadLetters::Add(delivery::Sequence sequence, std::string_view topic, std::string_view key,
                      bool follows) {
  std::optional<base::ParkedKeyId> id;
  if (!topic.empty()) {
    id = base::ParkedKeyIdOf(topic, key);
    const auto [found, added] = keys_.try_emplace(*id);
    ParkedKey& parked = found->second;
    parked.seen = parked.seen || added;
    if (parked.first_sequence == ParkedKey::kNone) {
      parked.settle_below = sequence;
    }
    parked.first_sequence = std::min(parked.first_sequence, sequence);
    ++parked.waiting;
  }
  waiting_.emplace(sequence, WaitingRow{id, follows});
}

void DeadLetters::OnAnswered(delivery::Sequence sequence, base::DeadLetterState state) {
  const auto found = waiting_.find(sequence);
  const std::optional<base::ParkedKeyId> id = found->second.key;
  waiting_.erase(found);
  const auto key = id ? keys_.find(*id) : keys_.end();
  if (key == keys_.end()) {
    return;
  }
  ParkedKey& parked = key->second;
  --parked.waiting;
  parked.open = parked.open || state == base::DeadLetterState::kOpen;
  if (parked.open) {
    return;
  }
  if (parked.waiting == 0) {
    keys_.erase(key);
    return;
  }
  // What was before the next of them goes by itself.
  const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                 [&](const auto& each) { return each.second.key == id; });
  parked.open_from.reset();
  parked.first_sequence = parked.settle_below = next->first;
  parked.parked_to = 0;
}

// Another instance may have had the slot meanwhile, or an operator the table.
void DeadLetters::OnConnected(const base::SourceFacts& facts) {
  facts_ = facts;
  written_rows_ = std::max(written_rows_, facts.progress ? facts.progress->dead_letters : 0);
  asked_ = false;
  ++request_id_;  // a request under way began before
  inserting_.clear();
  discarding_.reset();
  discards_stalled_ = false;
  ask_at_ = look_at_ = discard_at_ = base::MonotonicTime();
  loaded_ = !facts.may_have_dead_letters && written_rows_ == 0 && waiting_.empty() &&
            keys_.empty() && !release_ && discards_.empty();
  looked_ = keys_loaded_ = rows_loaded_ = sent_deleted_ = loaded_;
  loaded_through_ = 0;
  loaded_from_ = std::max(facts.start_lsn, facts.confirmed_flush_lsn);
  known_rows_.Clear();
  retry_waits_for_.reset();
  streamed_to_ = {facts.system_identifier, facts.TimelineOf(loaded_from_), loaded_from_, 0};
  if (loaded_) {
    sent_rows_.Clear();
  } else {
    sent_rows_.ReadFrom(streamed_to_);
  }
  for (auto& [id, key] : keys_) {
    key.seen = false;
  }
}

void DeadLetters::OnKeysLoaded(const DeadLetterReply& reply) {
  for (const base::ParkedKey& each : reply.keys) {
    ParkedKey& key = Key(each.topic, each.key);
    key.open = key.seen = true;
    const envelope::Position at = PositionOfPlace(each.place).value_or(envelope::Position());
    key.open_from = key.open_from ? std::min(*key.open_from, at) : at;
    loaded_through_ = std::max(loaded_through_, each.seq);
  }
  keys_loaded_ = reply.at_end;
  loaded_ = keys_loaded_ && rows_loaded_;
  if (!keys_loaded_) {
    return;
  }
  loaded_through_ = 0;
  // Nothing of these is there any more.
  absl::erase_if(keys_, [](auto& each) {
    each.second.open = each.second.open && each.second.seen;
    return !each.second.open && each.second.waiting == 0;
  });
}

void DeadLetters::OnRowsLoaded(const DeadLetterReply& reply) {
  for (const base::DeadLetter& row : reply.rows) {
    known_rows_.Add(row);
    loaded_through_ = row.seq;
    const absl::StatusOr<envelope::Position> at = envelope::Position::Parse(row.position);
    loaded_from_ = at.ok() ? at->commit_lsn : loaded_from_;
  }
  rows_loaded_ = reply.at_end;
  if (rows_loaded_) {
    keys_loaded_ = false;
    loaded_through_ = 0;
    for (auto& [id, key] : keys_) {
      key.seen = false;
    }
  }
}

void DeadLetters::Pass(const envelope::Position& place) {
  streamed_to_ = std::max(streamed_to_, place);
  sent_rows_.Pass(streamed_to_);
  LookIfPassed();
}

void DeadLetters::LookIfPassed() {
  if (retry_waits_for_ && *retry_waits_for_ < streamed_to_) {
    retry_waits_for_.reset();
    looked_ = looked_ && !Fills(1);  // it may make room
    look_at_ = base::MonotonicTime();
  }
}

Repeat DeadLetters::OnEvent(const envelope::Position& position, std::string_view event_id,
                            envelope::Record* record) {
  Pass(position);
  ++streamed_to_.ordinal;
  LookIfPassed();
  if (known_rows_.Has(position, event_id)) {
    return Repeat::kSettled;
  }
  const base::DeadLetter* const sent = sent_rows_.Find(position, event_id);
  if (sent == nullptr || !RowRecords::HasRecord(*sent) || !destinations_.Check(sent->topic).ok()) {
    return Repeat::kNone;
  }
  *record = records_.Of(*sent, sent->topic, &repeated_headers_);
  return Repeat::kSent;
}

// The row of an event is the only trace of it. A server that lost the row and has the event would
// not send it again, because it counts as delivered.
std::optional<Halt> DeadLetters::CheckWritten(std::uint64_t written) {
  if (written < written_rows_) {
    return Halt{base::HaltReason::kTimelineChanged,
                absl::StrFormat(
                    "this pipeline wrote %u rows to walpost.dead_letters, but the server knows of "
                    "%u: it was set back to an earlier state, or the tables were made anew, and "
                    "events that are dead letters are in no table and in no topic; see "
                    "docs/runbook.md, timeline_changed",
                    written_rows_, written)};
  }
  written_rows_ = written;
  return std::nullopt;
}

}  // namespace walpost::pipeline
