#include "pipeline/counters.h"

#include <algorithm>

#include "outbox/topic_template.h"

namespace walpost::pipeline {

void FailedEvents::Add(std::string_view topic, std::string_view reason) {
  // Anything else is a name that a row made up.
  std::string_view shown = outbox::IsLegalTopic(topic) ? topic : "(none)";
  const auto find = [&] {
    return std::find_if(rows.begin(), rows.end(),
                        [&](const Row& row) { return row.topic == shown && row.reason == reason; });
  };
  auto found = find();
  if (found == rows.end() && rows.size() >= kRowsMax) {
    shown = "(other)";
    found = find();
  }
  if (found == rows.end()) {
    rows.push_back({std::string(shown), std::string(reason), 0});
    found = rows.end() - 1;
  }
  ++found->count;
}

void DeliveredEvents::Add(std::string_view topic) { ++rows_[RowOf(topic)].second; }

std::size_t DeliveredEvents::RowOf(std::string_view topic) {
  if (topic == rows_[last_row_].first) {
    return last_row_;
  }
  auto found = row_by_topic_.find(absl::string_view(topic.data(), topic.size()));
  if (found == row_by_topic_.end()) {
    if (rows_.size() > kTopicsMax) {
      return 0;
    }
    found = row_by_topic_.emplace(topic, rows_.size()).first;
    rows_.emplace_back(std::string(topic), 0);
  }
  last_row_ = found->second;
  return last_row_;
}

}  // namespace walpost::pipeline
