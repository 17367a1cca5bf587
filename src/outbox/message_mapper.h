// MessageMapper - turns the content of a logical message, a walpost.v1.OutboxMessage, into an
// event.
// Why: an outbox without a table; what is emitted becomes the same event that a row would.
// Thread: one owner.   Lifetime: events point into the content, the prefix and the mapper, until the
//   next Map call.
// Limits: nothing is allocated per message once warm.
// Errors: kInvalidArgument (an undeliverable event) for bytes that are no OutboxMessage, a required
//   field that is missing and a topic or partition that cannot be; outbox/undeliverable.h says which.
//   Messages hold no values other than prefix, id and topic.
// Source: proto/walpost/v1/outbox_message.proto; docs/messages.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "outbox/event.h"
#include "outbox/topic_rules.h"
#include "outbox/topic_template.h"

namespace walpost::outbox {

// What stands for the table's name wherever an event is named: "message:shop".
inline constexpr std::string_view kMessageLabel = "message:";

std::string MessageLabel(std::string_view prefix);
bool IsMessageLabel(std::string_view table);

// For messages: {id}, {key}, {aggregate_type}, {type}, {schema_name} and {prefix}.
absl::StatusOr<TopicTemplate> ParseMessageTopic(std::string_view text);

class MessageMapper {
 public:
  // CHECK-fails for a template that ParseMessageTopic does not take.
  explicit MessageMapper(std::string_view topic, const TopicOptions& topics = {});

  // The event's table is the prefix, its schema is empty. On an error it is what was understood.
  absl::Status Map(std::string_view prefix, std::string_view content, Event* event);

  const TopicRules& topic_rules() const { return topic_rules_; }

 private:
  absl::Status Parse(std::string_view content, Event* event);
  absl::Status Check(const Event& event) const;
  absl::Status MapTopic(Event* event);
  void KeepLastHeaders();

  TopicTemplate topic_template_;
  TopicRules topic_rules_;
  std::string topic_text_;
  std::string checked_topic_;  // the last one that passed
  std::vector<Header> headers_;
  std::vector<std::uint32_t> order_;  // of headers_, by name
};

}  // namespace walpost::outbox
