#include "outbox/topic_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"

namespace walpost::outbox {
namespace {

constexpr std::size_t kTopicBytesMax = 249;

constexpr std::array<bool, 256> MakeLegal() {
  std::array<bool, 256> legal{};
  for (const char c :
       std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")) {
    legal[static_cast<unsigned char>(c)] = true;
  }
  return legal;
}

constexpr std::array<bool, 256> kLegal = MakeLegal();

bool AllLegal(std::string_view text) {
  return std::all_of(text.begin(), text.end(), IsTopicCharacter);
}

}  // namespace

absl::StatusOr<TopicTemplate> TopicTemplate::Parse(std::string_view text) {
  TopicTemplate result;
  std::string_view rest = text;
  while (!rest.empty()) {
    Part part;
    if (rest[0] == '{') {
      const std::size_t close = rest.find('}');
      if (close == std::string_view::npos || close == 1) {
        return absl::InvalidArgumentError(
            absl::StrFormat("topic template '%s': a '{' needs a column name and a '}'", text));
      }
      part.is_placeholder = true;
      part.text = std::string(rest.substr(1, close - 1));
      rest.remove_prefix(close + 1);
    } else {
      part.text = std::string(rest.substr(0, rest.find('{')));
      rest.remove_prefix(part.text.size());
      if (!AllLegal(part.text)) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "topic template '%s': only letters, digits, '.', '_' and '-' may stand outside {}",
            text));
      }
    }
    result.parts_.push_back(std::move(part));
  }
  if (result.parts_.empty()) {
    return absl::InvalidArgumentError("topic template is empty");
  }
  return result;
}

std::string TopicTemplate::Pattern() const {
  std::string pattern;
  for (const Part& part : parts_) {
    pattern += part.is_placeholder ? "*" : part.text;
  }
  return pattern;
}

bool IsTopicCharacter(char c) { return kLegal[static_cast<unsigned char>(c)]; }

bool IsLegalTopic(std::string_view topic) {
  return !topic.empty() && topic.size() <= kTopicBytesMax && topic != "." && topic != ".." &&
         AllLegal(topic);
}

}  // namespace walpost::outbox
