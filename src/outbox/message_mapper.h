// MessageMapper - turns the content of a logical message, a walpost.v1.OutboxMessage, into an
// event.
// Why: an outbox without a table; what is emitted becomes the same event that a row would.
// Thread: one owner.   Lifetime: events point into the content, the prefix and the mapper, until
//   the next Map call.
// Limits: nothing is allocated per message once warm.
// Errors: kInvalidArgument (an undeliverable event) for bytes that are no OutboxMessage, a required
//   field that is missing and a topic or partition that cannot be; outbox/event.h says which.
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

namespace walpost::outbox {

// WireReader - protobuf's wire format, one field after another.
// Why: a logical message's content becomes an event without a copy; a generated class would copy
//   every field. A fuzz target holds what is read against the generated class.
// Thread: a value.   Lifetime: views live as long as the bytes it was given.
// Errors: ok() is false after Next() has returned false before the end: a field that is cut, too
//   long or of an unknown kind, or one of the groups that proto3 does not have.
// Source: protobuf manual, "Encoding".
class WireReader {
 public:
  enum class Kind : std::uint8_t { kVarint, kFixed64, kBytes, kFixed32 };

  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  // The next field, or false: at the end, or where nothing can be read.
  bool Next();

  bool ok() const { return ok_; }

  std::uint32_t field() const { return field_; }

  Kind kind() const { return kind_; }

  // Of a field of kind kVarint.
  std::uint64_t number() const { return number_; }

  // Of a field of kind kBytes.
  std::string_view bytes() const { return bytes_; }

 private:
  bool Fail();
  bool Varint(std::size_t bytes_max, std::uint64_t* value);
  bool Take(std::size_t size);

  std::string_view rest_;
  bool ok_ = true;
  std::uint32_t field_ = 0;
  Kind kind_ = Kind::kVarint;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

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
