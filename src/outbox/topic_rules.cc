#include "outbox/topic_rules.h"

#include "absl/strings/str_format.h"
#include "outbox/topic_template.h"
#include "outbox/unfit.h"

namespace walpost::outbox {

TopicRules::TopicRules(const TopicOptions& options)
    : allowed_(options.allowed.begin(), options.allowed.end()),
      by_aggregate_type_(options.by_aggregate_type.begin(), options.by_aggregate_type.end()) {}

const std::string* TopicRules::Find(std::string_view aggregate_type) const {
  if (by_aggregate_type_.empty()) {
    return nullptr;
  }
  const auto found = by_aggregate_type_.find(aggregate_type);
  return found == by_aggregate_type_.end() ? nullptr : &found->second;
}

absl::Status TopicRules::Check(std::string_view topic, std::string_view where,
                               std::string_view event) const {
  if (!IsLegalTopic(topic)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: event '%s' asks for topic '%s', which Kafka does not allow "
                        "(letters, digits, '.', '_', '-', at most 249)",
                        where, event, topic.substr(0, 300)));
  }
  if (!allowed_.empty() && allowed_.find(topic) == allowed_.end()) {
    return UnfitError(kTopicNotAllowed,
                      absl::StrFormat("%s: event '%s' asks for topic '%s', which is not one of "
                                      "`topics.allowed`: add it there, or correct the row",
                                      where, event, topic));
  }
  return absl::OkStatus();
}

}  // namespace walpost::outbox
