// TopicRules - which topics events may go to, and which aggregate type goes where.
// Thread: a value.   Lifetime: what Find returns lives as long as the rules.
// Errors: Check: kInvalidArgument (an undeliverable event), reason topic_not_allowed when the name
//   is legal but not listed.
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
  std::vector<std::string> allowed;  // empty = all
  std::vector<std::pair<std::string, std::string>> by_aggregate_type;
};

class TopicRules {
 public:
  explicit TopicRules(const TopicOptions& options);

  // The topic of this aggregate type; null when it has none of its own.
  const std::string* Find(std::string_view aggregate_type) const;

  // `where` and `event` are for the message.
  absl::Status Check(std::string_view topic, std::string_view where, std::string_view event) const;

 private:
  std::set<std::string, std::less<>> allowed_;
  std::map<std::string, std::string, std::less<>> by_aggregate_type_;
};

}  // namespace walpost::outbox
