#include "outbox/topic_reach.h"

#include <algorithm>

#include "outbox/topic_router.h"
#include "outbox/topic_rules.h"
#include "outbox/topic_template.h"

namespace walpost::outbox {

std::string ImpliedTopics(const TableOptions& options) {
  if (options.debezium) {
    const auto router =
        TopicRouter::Make(options.debezium->topic_regex, options.debezium->topic_replacement);
    return router.ok() ? router->Pattern() : "";
  }
  const auto parsed = TopicTemplate::Parse(options.topic);
  return parsed.ok() ? parsed->Pattern() : "";
}

TopicReach::TopicReach(const TableOptions& options) {
  Patterns implied{ImpliedTopics(options)};
  for (const auto& [type, topic] : options.topics.by_aggregate_type) {
    implied.push_back(topic);
  }
  // A row that the regex does not match names its topic itself, as one does in a column.
  const bool named_by_rows = options.debezium || !options.columns.topic.empty();
  const Patterns& allowed = options.topics.allowed;
  limits_.push_back(allowed.empty() ? implied : allowed);
  if (!allowed.empty() && !named_by_rows) {
    limits_.push_back(std::move(implied));
  }
}

bool TopicReach::Holds(std::string_view topic) const {
  return std::all_of(limits_.begin(), limits_.end(), [&](const Patterns& limit) {
    return std::any_of(limit.begin(), limit.end(),
                       [&](const std::string& pattern) { return MatchesPattern(topic, pattern); });
  });
}

bool TopicReach::Meets(const TopicReach& other) const {
  const auto meet = [](const Patterns& ours, const Patterns& theirs) {
    return std::any_of(ours.begin(), ours.end(), [&](const std::string& our) {
      return std::any_of(theirs.begin(), theirs.end(),
                         [&](const std::string& their) { return PatternsMeet(our, their); });
    });
  };
  return std::all_of(limits_.begin(), limits_.end(), [&](const Patterns& ours) {
    return std::all_of(other.limits_.begin(), other.limits_.end(),
                       [&](const Patterns& theirs) { return meet(ours, theirs); });
  });
}

}  // namespace walpost::outbox
