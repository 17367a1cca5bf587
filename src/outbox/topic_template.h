// TopicTemplate - "orders.{aggregate_type}": literal text and placeholders, parsed once.
// Thread: a value.
// Errors: Parse: kInvalidArgument for unbalanced or empty braces and illegal literal characters.
// Limits: Kafka's: [A-Za-z0-9._-], at most 249 characters, not "." or "..".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace walpost::outbox {

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

}  // namespace walpost::outbox
