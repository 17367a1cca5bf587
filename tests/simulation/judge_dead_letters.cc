// What the judge knows of the table of dead letters, and what must not happen there.
#include <algorithm>
#include <utility>

#include "judge.h"
#include "violation.h"

namespace walpost::simulation {

using base::DeadLetter;
using pipeline::OnUndeliverable;

bool Judge::MayBeRejected(std::uint64_t event) const {
  return blamed(event) || server_->events()[event].undeliverable;
}

// It parks no key.
bool Judge::HasNoTopic(std::uint64_t event) const {
  return server_->events()[event].undeliverable && !server_->events()[event].too_large;
}

// Is a gap at this event all right?
bool Judge::Excused(std::uint64_t event) const {
  const State& state = states_[event];
  return state.passed || state.skipped || state.dead_letter || state.discarded || Gone(event) ||
         (dead_letter_ever_ && MayBeRejected(event) && !state.parked);
}

// Nobody sends it, and those behind it go on.
bool Judge::MaySkip(std::uint64_t event) const {
  return (policy_ == OnUndeliverable::kSkip || policy_ == OnUndeliverable::kDeadLetter) &&
         MayBeRejected(event);
}

void Judge::OnSkipped(const std::string& id) {
  Grow();
  const std::uint64_t event = Find(id);
  Require(policy_ == OnUndeliverable::kSkip && MayBeRejected(event),
          "event %s was skipped, but nothing rejected it", id);
  states_[event].skipped = true;
}

void Judge::OnSkippedUnreported() {
  for (std::uint64_t i = 0; i < states_.size(); ++i) {
    states_[i].skipped =
        states_[i].skipped || (policy_ == OnUndeliverable::kSkip && MayBeRejected(i));
  }
}

// It came from the slot, and is to be written: once more after a crash, or after a reply that was
// lost.
void Judge::OnInsertAsked(const DeadLetter& row) {
  Grow();
  const std::uint64_t index = Find(row.event_id);
  const Event& event = server_->events()[index];
  CheckMainLine(index);
  Require(row.position == PositionOf(index), "dead letter of event %s: position %s", event.id,
          row.position);
  Require(event.undeliverable || row.topic == event.topic, "dead letter of event %s: another topic",
          event.id);
  Require(row.key == event.key, "dead letter of event %s: another key than its row", event.id);
  envelope::Record record;
  record.key = event.key;
  if (row.value) {
    record.value = *row.value;
  }
  std::vector<envelope::RecordHeader> headers;
  for (const DeadLetter::Header& header : row.headers) {
    headers.push_back({header.name, header.value ? *header.value : std::string_view()});
  }
  record.headers = headers;
  CheckRecord(record, event, /*dead_letter=*/true);
  if (!row.parked) {
    Require(MayBeRejected(index), "event %s became a dead letter, but nothing rejected it",
            event.id);
    Require(policy_ == OnUndeliverable::kDeadLetter || row.topic.empty(),
            "event %s is a dead letter, but its key is not parked", event.id);
    return;
  }
  const bool follows = row.reason == "key_parked";
  // Kafka had taken it, and rejects it now: it comes no more, or stands behind the others.
  if (visible_[index] && !follows) {
    taken_and_rejected_[event.lane] = true;
  }
  Require(MayBeRejected(index) || (follows && lane_parked_[event.lane]),
          "event %s is parked, but nothing rejected it (%s)", event.id, row.reason);
  lane_parked_[event.lane] = true;
}

// Rows of a key are sent in the order in which they were written.
void Judge::CheckParkedInOrder(const DeadLetter& row, std::uint64_t index) const {
  if (!row.parked) {
    return;
  }
  const Event& event = server_->events()[index];
  for (std::uint32_t i = 0; i < event.lane_index; ++i) {
    const std::uint64_t before = lane_events_[event.lane][i];
    Require(visible_[before] || states_[before].in_table || Excused(before) || MaySkip(before) ||
                states_[before].left_out || HasNoTopic(before),
            "G3: event %s is parked before %s of its key", event.id, server_->events()[before].id);
  }
}

void Judge::OnRow(const DeadLetter& row) {
  const std::uint64_t index = Find(row.event_id);
  State& state = states_[index];
  state.in_table = state.has_row = true;
  CheckParkedInOrder(row, index);
  open_.insert(index);
  if (row.parked) {
    state.parked = true;
    parked_[server_->events()[index].lane].insert(index);
  } else {
    state.dead_letter = true;
  }
}

// walpost knows of it.
void Judge::OnKnown(const DeadLetter& row) {
  const std::uint64_t index = Find(row.event_id);
  reported_epoch_[index] = epoch_;
  reported_ever_[index] = true;
  State& state = states_[index];
  state.sent_from_row =
      state.sent_from_row && (state.sent_epoch == epoch_ || !open_.contains(index));
}

// What is decided about it counts until it is submitted: then it has to be looked at again.
void Judge::OnLookedAgain(const DeadLetter& row) {
  State& state = states_[Find(row.event_id)];
  state.looked_at = true;
  state.to_be_sent = !row.discard();
}

void Judge::CheckAgainSubmitted(const Identity& what) {
  State& state = states_[what.event];
  const bool looked_at = std::exchange(state.looked_at, false);
  Require(looked_at && state.to_be_sent,
          "event %s is sent again, but nobody looked whether it still is to be",
          server_->events()[what.event].id);
  Require(open_.contains(what.event), "event %s is sent again, but it has no open row",
          server_->events()[what.event].id);
}

void Judge::Leave(const DeadLetter& row) {
  const std::uint64_t index = Find(row.event_id);
  open_.erase(index);
  parked_[server_->events()[index].lane].erase(index);
}

void Judge::OnRowDelivered(const DeadLetter& row) {
  const std::uint64_t index = Find(row.event_id);
  Require(visible_[index], "G1: the row of event %s goes, but the event is in no topic",
          row.event_id);
  Leave(row);
}

void Judge::OnRowClosed(const DeadLetter& row) {
  Require(row.discard(), "event %s is closed, but nobody discarded it", row.event_id);
  states_[Find(row.event_id)].discarded = true;
  Leave(row);
}

// When it comes again, it is sent in its order.
void Judge::OnRowSent(const DeadLetter& row) {
  State& state = states_[Find(row.event_id)];
  state.has_row = false;
}

void Judge::OnTakenBack(const DeadLetter& row) { states_[Find(row.event_id)].taken_back = true; }

void Judge::OnRetryFailed(const DeadLetter& row, const std::string& detail) {
  if (detail.find("nobody has decided") != std::string::npos) {
    Require(states_[Find(row.event_id)].taken_back, "event %s: %s", row.event_id, detail);
    return;
  }
  const bool incomplete = detail.find("no record that could be sent") != std::string::npos;
  Require(incomplete ? row.truncated_bytes.has_value()
                     : again_rejected_.contains(server_->events()[Find(row.event_id)].lane),
          "a retry of event %s failed, but nothing rejected it: %s", row.event_id, detail);
}

}  // namespace walpost::simulation
