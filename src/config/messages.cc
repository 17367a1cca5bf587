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

pipeline::MessagesOptions ReadMessages(MapReader reader) {
  pipeline::MessagesOptions messages;
  reader.Names("prefixes", &messages.prefixes);
  for (auto prefix = messages.prefixes.begin(); prefix != messages.prefixes.end(); ++prefix) {
    if (!IsPrefix(*prefix)) {
      reader.Problem("prefixes", "a prefix has 1 to 200 bytes and no control characters");
    }
    if (std::find(messages.prefixes.begin(), prefix, *prefix) != prefix) {
      reader.Problem("prefixes", absl::StrFormat("'%s' is listed twice", *prefix));
    }
  }
  if (reader.Text("topic", &messages.topic)) {
    if (const auto parsed = outbox::ParseMessageTopic(messages.topic); !parsed.ok()) {
      reader.Problem("topic", std::string(parsed.status().message()));
    }
  }
  ReadValue(reader.Map("value"), &messages.encoder);
  reader.Finish();
  return messages;
}

}  // namespace walpost::config
