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

}  // namespace walpost::pipeline
