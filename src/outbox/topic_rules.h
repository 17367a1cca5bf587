// TopicRules - which topics an event may go to, and which aggregate type goes where. One rule for
// rows and messages, whatever the format.
// Why: who may write an event chooses its payload, its key and, among the topics that the
//   configuration allows, its topic. walpost reads some topics back, so an event never goes there.
// Thread: a value.   Lifetime: what Find returns lives as long as the rules.
// Errors: Check: kInvalidArgument (an undeliverable event), reason topic_not_allowed when the name
//   is legal but not allowed.
// Source: docs/security.md.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "outbox/java_regex.h"

namespace walpost::outbox {

// TopicTemplate - "orders.{aggregate_type}": literal text and placeholders, parsed once.
// Errors: Parse: kInvalidArgument for unbalanced or empty braces and illegal literal characters.
// Limits: Kafka's: [A-Za-z0-9._-], at most 249 characters, not "." or "..".
class TopicTemplate {
 public:
  struct Part {
    bool is_placeholder = false;
    std::string text;  // literal text, or the placeholder's name
  };

  static absl::StatusOr<TopicTemplate> Parse(std::string_view text);

  const std::vector<Part>& parts() const { return parts_; }

  // What it can give: the literal text, with '*' for each placeholder.
  std::string Pattern() const;

 private:
  std::vector<Part> parts_;
};

// By Kafka's rule: 1 to 249 letters, digits, '.', '_' and '-', and neither "." nor "..".
bool IsLegalTopic(std::string_view topic);
bool IsTopicCharacter(char c);

struct TopicOptions {
  // Names, and patterns in which '*' stands for any text. Empty: what the template can give. A
  // topic that begins with '_', such as the Schema Registry's _schemas, needs one that does, too.
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
  std::vector<std::string> underscored_;  // names and patterns of the configuration with '_' first
  std::map<std::string, std::string, std::less<>> by_aggregate_type_;
};

// TopicRouter - the value of the routing column to the topic, as Debezium's Event Router does.
// Why: few values route many rows, so each is matched once and remembered.
// Thread: one owner.   Lifetime: a topic's text lives until the next Route.
// Limits: kRememberedMax values are remembered, of kRememberedBytesMax together: who writes events
//   chooses them. Only a legal topic's value is, and one that is not much longer than a topic may
//   be. Nothing is allocated for one that is.
// Errors: Make: as JavaRegex. Route: kInvalidArgument (an undeliverable event).
class TopicRouter {
 public:
  static constexpr std::size_t kRememberedMax = 10'000;
  static constexpr std::size_t kRememberedBytesMax = std::size_t{1024} * 1024;  // of both texts

  static absl::StatusOr<TopicRouter> Make(const std::string& regex, const std::string& replacement);

  absl::StatusOr<std::string_view> Route(std::string_view value);

  // What a value that the regex matches can become, with '*' for each group.
  std::string Pattern() const { return regex_.Pattern(); }

  std::size_t remembered() const { return topics_.size(); }

  std::size_t remembered_bytes() const { return bytes_; }

 private:
  explicit TopicRouter(JavaRegex regex) : regex_(std::move(regex)) {}

  JavaRegex regex_;
  std::string topic_;  // the last one that is not remembered
  std::size_t bytes_ = 0;
  std::map<std::string, std::string, std::less<>> topics_;
};

}  // namespace walpost::outbox
