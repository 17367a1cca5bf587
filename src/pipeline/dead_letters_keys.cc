// Which keys are parked, and from which event on.
#include <algorithm>

#include "envelope/position.h"
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

}  // namespace walpost::pipeline
