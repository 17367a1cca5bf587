#include "pipeline/counters.h"

#include <algorithm>

namespace walpost::pipeline {
namespace {

// As Kafka has it; anything else is a name that a row made up.
bool IsLegalTopic(std::string_view topic) {
  return !topic.empty() && topic.size() <= 249 &&
         std::all_of(topic.begin(), topic.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

}  // namespace

void FailedEvents::Add(std::string_view topic, std::string_view reason) {
  std::string_view shown = IsLegalTopic(topic) ? topic : "(none)";
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
