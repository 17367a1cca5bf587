#include "pipeline/destinations.h"

#include <algorithm>

#include "outbox/message_mapper.h"
#include "outbox/table_mapper.h"

namespace walpost::pipeline {

Destinations::Destinations(const PipelineOptions& options) {
  for (const envelope::OutboxOptions& outbox : options.outboxes) {
    rules_.push_back(outbox::TableMapper(outbox.table).topic_rules());
  }
  if (!options.messages.prefixes.empty()) {
    rules_.push_back(
        outbox::MessageMapper(options.messages.topic, options.messages.topics).topic_rules());
  }
}

bool Destinations::Allow(std::uint32_t table, std::string_view topic) const {
  return !rules_.empty() &&
         rules_[std::min<std::size_t>(table, rules_.size() - 1)].Check(topic).ok();
}

absl::Status Destinations::Check(std::string_view topic) const {
  absl::Status status = absl::OkStatus();
  for (const outbox::TopicRules& rules : rules_) {
    status = rules.Check(topic);
    if (status.ok()) {
      break;
    }
  }
  return status;
}

}  // namespace walpost::pipeline
