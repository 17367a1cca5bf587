#include "judge.h"

#include <charconv>
#include <chrono>
#include <string_view>

#include "envelope/position.h"
#include "violation.h"

namespace walpost::simulation {
namespace {

std::string_view HeaderOf(const envelope::Record& record, std::string_view name) {
  for (const envelope::RecordHeader& header : record.headers) {
    if (header.name == name) {
      return header.value;
    }
  }
  return {};
}

}  // namespace

Judge::Judge(const ModelPostgres* server, bool raw)
    : server_(server),
      raw_(raw),
      next_visible_(server->lanes()),
      lane_reported_(server->lanes()),
      first_unreported_(server->lanes()) {}

void Judge::Grow() {
  const std::size_t events = server_->events().size();
  visible_.resize(events);
  reported_epoch_.resize(events);
  submitted_generation_.resize(events);
}

std::uint64_t Judge::Identify(const envelope::Record& record) {
  Grow();
  const std::string_view id = HeaderOf(record, "id");
  // Ids are given in the order of the events, with those of rolled-back rows between.
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
  const Event& event = events[low];
  const envelope::Position position{server_->Facts().system_identifier, event.timeline,
                                    event.commit_lsn, event.ordinal};
  const std::string_view position_text = HeaderOf(record, "walpost-position");
  Require(position_text == position.ToString(), "event %s: position %s, expected %s", event.id,
          std::string(position_text), position.ToString());
  Require(record.topic == event.topic && record.key == event.key,
          "event %s: another topic or key than its row", event.id);
  Require(record.timestamp_ms == std::chrono::duration_cast<std::chrono::milliseconds>(
                                     event.commit_time.time_since_epoch())
                                     .count(),
          "event %s: another timestamp than its commit", event.id);
  Require(record.value.has_value(), "event %s: no value", event.id);
  if (raw_) {
    Require(*record.value == event.payload, "event %s: another payload than its row", event.id);
  } else {
    Require(record.value->find(event.payload) != std::string_view::npos,
            "event %s: another payload than its row", event.id);
  }
  return low;
}

void Judge::OnGeneration() {
  ++generation_;
  submitted_lanes_.clear();
}

void Judge::OnSubmitted(std::uint64_t index) {
  const Event& event = server_->events()[index];
  Require(submitted_generation_[index] != generation_, "event %s submitted twice to one producer",
          event.id);
  submitted_generation_[index] = generation_;
  Require(reported_epoch_[index] != epoch_, "event %s submitted again although it was acknowledged",
          event.id);
  const auto [found, first] = submitted_lanes_.try_emplace(event.lane, event.lane_index);
  if (first) {
    Require(event.lane_index <= first_unreported_[event.lane],
            "G3: a producer begins with event %s, but the one before it is not acknowledged",
            event.id);
  } else {
    Require(event.lane_index == found->second + 1,
            "G3: event %s (index %u of its key) submitted after index %u", event.id,
            event.lane_index, found->second);
    found->second = event.lane_index;
  }
}

void Judge::OnVisible(std::uint64_t index) {
  const Event& event = server_->events()[index];
  std::uint32_t& next = next_visible_[event.lane];
  Require(event.lane_index <= next,
          "G3: event %s (index %u of its key) became visible before index %u", event.id,
          event.lane_index, next);
  if (event.lane_index == next) {
    Require(!visible_[index], "the consumer would take event %s twice", event.id);
    ++next;
  }
  visible_[index] = true;
}

void Judge::OnReported(std::uint64_t index) {
  const Event& event = server_->events()[index];
  ++reports_;
  reported_epoch_[index] = epoch_;
  std::vector<bool>& reported = lane_reported_[event.lane];
  if (reported.size() <= event.lane_index) {
    reported.resize(event.lane_index + 1);
  }
  reported[event.lane_index] = true;
  std::uint32_t& first = first_unreported_[event.lane];
  while (first < reported.size() && reported[first]) {
    ++first;
  }
}

void Judge::OnMemoryLost() { ++epoch_; }

base::Lsn Judge::first_missing() {
  Grow();
  while (visible_below_ < visible_.size() && visible_[visible_below_]) {
    ++visible_below_;
  }
  return visible_below_ == visible_.size() ? base::Lsn(UINT64_MAX)
                                           : server_->events()[visible_below_].commit_lsn;
}

bool Judge::complete() { return first_missing() == base::Lsn(UINT64_MAX); }

void Judge::OnPosition(base::Lsn flush, const char* what) {
  const base::Lsn missing = first_missing();
  Require(flush <= missing, "G5: %s %s, but the event at %s is in no log", what, flush.ToString(),
          missing.ToString());
  Require(flush <= server_->wal_end(), "%s %s, but the server's log ends at %s", what,
          flush.ToString(), server_->wal_end().ToString());
}

}  // namespace walpost::simulation
