#include "judge.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string_view>

#include "envelope/control_records.h"
#include "progress_log.h"
#include "violation.h"

namespace walpost::simulation {
namespace {

// Of a value that says its schema: 00, and an id below 256 in four bytes.
constexpr std::size_t kFrameBytes = 5;

}  // namespace

Judge::Judge(const ModelPostgres* server, const Plan& plan)
    : server_(server),
      raw_(plan.raw),
      framed_(plan.framed),
      policy_(plan.options.on_undeliverable),
      next_visible_(server->lanes()),
      last_visible_(server->lanes()),
      first_unreported_(server->lanes()),
      lane_events_(server->lanes()),
      lane_parked_(server->lanes()),
      taken_and_rejected_(server->lanes()),
      parked_(server->lanes()) {}

void Judge::Grow() {
  const std::size_t events = server_->events().size();
  if (visible_.size() == events) {
    return;
  }
  for (std::uint64_t i = visible_.size(); i < events; ++i) {
    const Event& event = server_->events()[i];
    positions_.push_back(
        envelope::Position{event.system_identifier, event.timeline, event.commit_lsn, event.ordinal}
            .ToString());
    lane_events_[event.lane].push_back(i);
  }
  visible_.resize(events);
  reported_epoch_.resize(events);
  submitted_session_.resize(events);
  states_.resize(events);
  reported_ever_.resize(events);
}

// Ids are given in the order of the events, with those of rolled-back rows between.
std::uint64_t Judge::Find(std::string_view id) const {
  const std::vector<Event>& events = server_->events();
  std::uint64_t number = UINT64_MAX;
  if (id.size() > 1) {
    std::from_chars(id.data() + 1, id.data() + id.size(), number);
  }
  std::uint64_t low = 0;
  std::uint64_t high = events.size();
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    std::uint64_t there = 0;
    const std::string& text = events[middle].id;
    std::from_chars(text.data() + 1, text.data() + text.size(), there);
    (there < number ? low : high) = there < number ? middle + 1 : middle;
  }
  Require(low < events.size() && events[low].id == id, "G2: record with id '%s' is of no event",
          std::string(id));
  return low;
}

Identity Judge::Identify(const envelope::Record& record) {
  Grow();
  Identity what;
  if (record.topic == ProgressLog::kTopic) {
    const auto progress = envelope::DecodeProgress(record.value.value_or(""));
    Require(progress.ok() && record.key == kPipelineName && record.partition == 0,
            "a record of the progress topic is none");
    what.kind = Identity::Kind::kProgress;
    what.event = progress->end_lsn.value();
    what.bytes = std::string(*record.value);
    return what;
  }
  what.event = Find(HeaderOf(record, "id"));
  const Event& event = server_->events()[what.event];
  const bool again = !HeaderOf(record, "walpost-redelivery").empty();
  // A row that was sent has its event sent as it has it.
  const bool released = again && open_.contains(what.event);
  Require(released || !again || states_[what.event].sent_from_row,
          "event %s is sent again, but it has no row", event.id);
  what.kind = released ? Identity::Kind::kAgain : Identity::Kind::kEvent;
  const std::string_view other = again ? "walpost-position" : "walpost-original-position";
  Require(HeaderOf(record, other).empty(), "event %s has %s", event.id, std::string(other));
  const std::string_view position =
      HeaderOf(record, again ? "walpost-original-position" : "walpost-position");
  Require(position == PositionOf(what.event), "event %s: position %s, expected %s", event.id,
          std::string(position), PositionOf(what.event));
  Require(record.topic == event.topic && !event.undeliverable,
          "event %s: another topic than its row", event.id);
  CheckRecord(record, event, /*dead_letter=*/false);
  return what;
}

void Judge::CheckRecord(const envelope::Record& record, const Event& event,
                        bool dead_letter) const {
  Require(record.key == event.key, "event %s: another key than its row", event.id);
  if (dead_letter && event.undeliverable) {
    Require(record.headers.empty(), "a truncated dead letter with headers");
    // Its table may not have it any more.
    Require(record.value && record.value->find(event.payload) != std::string_view::npos,
            "G1: the dead letter of event %s has nothing of its row", event.id);
    return;
  }
  Require(
      dead_letter || record.timestamp_ms == std::chrono::duration_cast<std::chrono::milliseconds>(
                                                event.commit_time.time_since_epoch())
                                                .count(),
      "event %s: another timestamp than its commit", event.id);
  Require(HeaderOf(record, "id") == event.id, "event %s: another id", event.id);
  Require(record.value.has_value(), "event %s: no value", event.id);
  std::string_view value = *record.value;
  if (framed_ && !dead_letter) {
    constexpr std::string_view kMagic("\0\0\0\0", 4);
    Require(value.size() >= kFrameBytes && value.substr(0, kMagic.size()) == kMagic,
            "event %s: no schema before its value", event.id);
    value.remove_prefix(kFrameBytes);
  }
  if (raw_) {
    Require(value == event.payload, "event %s: another payload than its row", event.id);
  } else {
    Require(value.find(event.payload) != std::string_view::npos,
            "event %s: another payload than its row", event.id);
  }
}

void Judge::OnSession() {
  ++session_;
  submitted_lanes_.clear();
}

void Judge::OnSubmitted(const Identity& what) {
  if (what.kind == Identity::Kind::kAgain) {
    CheckAgainSubmitted(what);
    return;
  }
  if (what.kind == Identity::Kind::kProgress) {
    progress_given_ = base::Lsn(what.event);  // what was decided in this turn is not known yet
    return;
  }
  const std::uint64_t index = what.event;
  const Event& event = server_->events()[index];
  CheckMainLine(index);
  Require(submitted_session_[index] != session_, "event %s submitted twice to one producer",
          event.id);
  submitted_session_[index] = session_;
  Require(reported_epoch_[index] != epoch_ || states_[index].sent_from_row,
          "event %s submitted again although it was acknowledged", event.id);
  Require(!states_[index].has_row || states_[index].sent_from_row,
          "event %s is a dead letter, and the stream sends it again", event.id);
  // Acknowledged, or such that nobody sends it.
  const auto settled = [this](std::uint64_t other) {
    return reported_epoch_[other] == epoch_ || MaySkip(other) || HasNoTopic(other) || Gone(other) ||
           states_[other].left_out || states_[other].dead_letter || states_[other].discarded;
  };
  const std::vector<std::uint64_t>& lane = lane_events_[event.lane];
  const auto [found, first] = submitted_lanes_.try_emplace(event.lane, event.lane_index);
  if (first) {
    std::uint32_t& unreported = first_unreported_[event.lane];
    while (unreported < event.lane_index &&
           (reported_ever_[lane[unreported]] || settled(lane[unreported]))) {
      ++unreported;
    }
    Require(event.lane_index <= unreported,
            "G3: a producer begins with event %s, but %s before it is not acknowledged", event.id,
            server_->events()[lane[unreported]].id);
    return;
  }
  Require(event.lane_index > found->second,
          "G3: event %s (index %u of its key) submitted after index %u", event.id, event.lane_index,
          found->second);
  for (std::uint32_t i = found->second + 1; i < event.lane_index; ++i) {
    Require(settled(lane[i]), "G3: event %s (index %u of its key) submitted after index %u",
            event.id, event.lane_index, found->second);
  }
  found->second = event.lane_index;
}

void Judge::OnVisible(const Identity& what, bool late) {
  if (what.kind != Identity::Kind::kEvent && what.kind != Identity::Kind::kAgain) {
    return;
  }
  Grow();
  const Event& event = server_->events()[what.event];
  const bool orderless = states_[what.event].dead_letter;
  if (what.kind == Identity::Kind::kAgain && orderless) {
    visible_[what.event] = true;  // later events of its key may have gone on, or not
    return;
  }
  std::uint32_t& next = next_visible_[event.lane];
  for (std::uint32_t i = next; i < event.lane_index; ++i) {
    const std::uint64_t before = lane_events_[event.lane][i];
    Require(Excused(before) || HasNoTopic(before),
            "G3: event %s (index %u of its key) became visible before %s (index %u)", event.id,
            event.lane_index, server_->events()[before].id, i);
    states_[before].passed = true;
  }
  if (event.lane_index >= next) {
    Require(!visible_[what.event] || orderless, "the consumer would take event %s twice", event.id);
    next = event.lane_index + 1;
  } else {
    Require(visible_[what.event] || Excused(what.event),
            "G3: the consumer would drop event %s, which it never saw", event.id);
  }
  visible_[what.event] = true;
  std::uint32_t& last = last_visible_[event.lane];
  last = late ? std::max(last, event.lane_index) : event.lane_index;
}

void Judge::OnReported(const Identity& what) {
  ++reports_[static_cast<std::size_t>(what.kind)];
  if (what.kind == Identity::Kind::kAgain) {
    states_[what.event].sent_from_row = true;
    states_[what.event].sent_epoch = epoch_;
  }
  if (what.kind != Identity::Kind::kEvent) {
    return;
  }
  reported_epoch_[what.event] = epoch_;
  reported_ever_[what.event] = true;
}

void Judge::OnPoison(const Identity& what) {
  switch (what.kind) {
    case Identity::Kind::kEvent:
      blamed_.insert(what.event);
      break;
    case Identity::Kind::kAgain:
      again_rejected_.insert(server_->events()[what.event].lane);
      break;
    case Identity::Kind::kProgress:
      break;
  }
}

void Judge::OnMemoryLost() {
  ++epoch_;
  progress_given_ = base::Lsn();
  remembered_.reset();
}

base::Lsn Judge::first_missing() {
  Grow();
  while (safe_below_ < visible_.size() && (visible_[safe_below_] || states_[safe_below_].in_table ||
                                           states_[safe_below_].skipped || Gone(safe_below_))) {
    ++safe_below_;
  }
  // Of what came after a switch it does not know of, nothing is missing yet.
  const bool missing = safe_below_ < visible_.size() && server_->events()[safe_below_].era <= era_;
  return missing ? server_->events()[safe_below_].commit_lsn : base::Lsn(UINT64_MAX);
}

void Judge::OnConnected(base::Lsn remembered) {
  era_ = server_->era();
  remembered_ = remembered_.value_or(remembered);
  table_oids_ = server_->oids();
}

void Judge::OnAdopted(base::Lsn position) {
  Grow();
  for (std::uint64_t i = 0; i < states_.size(); ++i) {
    const Event& event = server_->events()[i];
    const bool before = event.era < server_->era() || event.commit_lsn < position;
    const bool logged = visible_[i] || states_[i].in_table || states_[i].skipped;
    states_[i].left_out = states_[i].left_out || before;
    states_[i].lost = states_[i].lost || (before && !logged);
  }
  clean_epoch_ = 0;
}

bool Judge::OnTakenOver() {
  Grow();
  for (std::uint64_t i = 0; i < states_.size(); ++i) {
    const Event& event = server_->events()[i];
    if (event.undeliverable || blamed_.count(i) != 0 || (states_[i].lost && !event.gone)) {
      return false;
    }
  }
  OnForeign();
  for (std::uint64_t i = 0; i < states_.size(); ++i) {
    if (!Gone(i) && !visible_[i]) {
      OnVisible(Identity{Identity::Kind::kEvent, i, ""});
    }
    reported_ever_[i] = true;
  }
  remembered_ = server_->wal_end();
  return true;
}

// It came from the slot.
void Judge::CheckMainLine(std::uint64_t index) const {
  const Event& event = server_->events()[index];
  Require(event.commit_lsn >= remembered_.value_or(base::Lsn()),
          "event %s at %s is sent again, but progress was remembered up to %s", event.id,
          event.commit_lsn.ToString(), remembered_.value_or(base::Lsn()).ToString());
  Require(clean_epoch_ == 0 || reported_epoch_[index] != clean_epoch_ || clean_epoch_ == epoch_ ||
              states_[index].sent_from_row,
          "event %s is sent again after a clean stop", event.id);
  Require(event.oid == table_oids_[event.table],
          "G6: event %s is of a table with OID %u, but was OID %u at the last look", event.id,
          event.oid, table_oids_[event.table]);
}

bool Judge::complete() {
  first_missing();
  return safe_below_ == visible_.size() &&
         std::all_of(parked_.begin(), parked_.end(), [](const auto& lane) { return lane.empty(); });
}

void Judge::CheckNewest() const {
  for (const std::vector<std::uint64_t>& lane : lane_events_) {
    for (const std::uint64_t event : lane) {
      const Event& newest = server_->events()[event];
      const std::uint32_t last = last_visible_[newest.lane];
      Require(!visible_[event] || Excused(event) || MaySkip(event) || states_[event].left_out ||
                  newest.lane_index <= last || foreign_ || taken_and_rejected_[newest.lane],
              "G3: event %s came again, and event %s of its key did not come again behind it",
              server_->events()[lane[last]].id, newest.id);
    }
  }
}

void Judge::OnPosition(base::Lsn flush, const char* what) {
  const base::Lsn missing = first_missing();
  Require(flush <= missing, "G5: %s %s, but the event at %s is in no log", what, flush.ToString(),
          missing.ToString());
  Require(era_ != server_->era() || flush <= server_->wal_end(),
          "%s %s, but the server's log ends at %s", what, flush.ToString(),
          server_->wal_end().ToString());
}

}  // namespace walpost::simulation
