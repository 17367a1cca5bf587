// TopicRules - which topics an event may go to, and which aggregate type goes where. One rule for
// rows and messages, whatever the format.
// Why: who may write an event chooses its payload, its key and, among the topics that the
//   configuration allows, its topic. walpost reads some topics back, so an event never goes there.
// Thread: a value.   Lifetime: what Find returns lives as long as the rules.
// Errors: Check: kInvalidArgument (an undeliverable event), reason topic_not_allowed when the name
//   is legal but not allowed.
// Source: docs/security.md.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace walpost::outbox {

struct TopicOptions {
  // Names, and patterns in which '*' stands for any text. Empty: what the template can give.
  std::vector<std::string> allowed;
  std::vector<std::pair<std::string, std::string>> by_aggregate_type;
  // What this pipeline reads or writes itself, beside the names that IsReservedTopic knows.
  std::vector<std::string> own;
};

// Kafka's internal topics (`__...`) and walpost's (`walpost....`): never an event's.
bool IsReservedTopic(std::string_view topic);

// '*' stands for any text, also none.
bool MatchesPattern(std::string_view topic, std::string_view pattern);

// Whether some text matches both patterns.
bool PatternsMeet(std::string_view one, std::string_view other);

// A topic's name, or one with '*' in it.
bool IsLegalTopicPattern(std::string_view pattern);

// Two or more '*' in a row, and a pattern of nothing else, allow any topic.
bool AllowsAnyTopic(std::string_view pattern);

// Those of `allowed` that are names: patterns say nothing about which topics there are.
std::vector<std::string> NamesAmong(const std::vector<std::string>& allowed);

class TopicRules {
 public:
  // `implied` is the pattern of what the template can give.
  TopicRules(const TopicOptions& options, std::string implied);

  // The topic of this aggregate type; null when it has none of its own.
  const std::string* Find(std::string_view aggregate_type) const;

  // The message begins with "it asks for topic".
  absl::Status Check(std::string_view topic) const;

 private:
  bool IsAllowed(std::string_view topic) const;

  std::set<std::string, std::less<>> own_;
  std::set<std::string, std::less<>> allowed_;
  std::vector<std::string> patterns_;
  std::map<std::string, std::string, std::less<>> by_aggregate_type_;
};

}  // namespace walpost::outbox
