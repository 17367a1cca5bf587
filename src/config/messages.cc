#include "config/messages.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "config/outboxes.h"
#include "outbox/message_mapper.h"

namespace walpost::config {
namespace {

// It becomes part of a metric's label and of headers.
constexpr std::size_t kPrefixBytesMax = 200;

bool IsPrefix(const std::string& prefix) {
  return !prefix.empty() && prefix.size() <= kPrefixBytesMax &&
         std::none_of(prefix.begin(), prefix.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

void ReadMessages(MapReader reader, pipeline::MessagesOptions* messages) {
  reader.Names("prefixes", &messages->prefixes, Key::Form::kList);
  for (auto prefix = messages->prefixes.begin(); prefix != messages->prefixes.end(); ++prefix) {
    if (!IsPrefix(*prefix)) {
      reader.Problem("prefixes", "a prefix has 1 to 200 bytes and no control characters");
    }
    if (std::find(messages->prefixes.begin(), prefix, *prefix) != prefix) {
      reader.Problem("prefixes", absl::StrFormat("'%s' is listed twice", *prefix));
    }
  }
  if (reader.Text("topic", &messages->topic)) {
    if (const auto parsed = outbox::ParseMessageTopic(messages->topic); !parsed.ok()) {
      reader.Problem("topic", std::string(parsed.status().message()));
    } else if (outbox::IsReservedTopic(parsed->Pattern())) {
      reader.Problem(
          "topic", absl::StrFormat("'%s' belongs to walpost or to Kafka itself", messages->topic));
    }
  }
  MapReader topics = reader.Map("topics");
  ReadAllowed(&topics, &messages->topics);
  topics.Finish();
  const auto parsed = outbox::ParseMessageTopic(messages->topic);
  if (!messages->prefixes.empty() && messages->topics.allowed.empty() && parsed.ok() &&
      outbox::AllowsAnyTopic(parsed->Pattern())) {
    reader.Problem("topics.allowed",
                   "any SQL role may emit, and each message names its topic: list the topics that "
                   "messages may name, such as [orders, \"shop.*\"], or [\"*\"] for any");
  }
  reader.Choice("on_undeliverable", {"skip", "halt"}, &messages->halts);
  ReadValue(reader.Map("value"), &messages->encoder);
  reader.Finish();
}

}  // namespace walpost::config
