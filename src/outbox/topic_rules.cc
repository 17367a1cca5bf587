#include "outbox/topic_rules.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "outbox/event.h"

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

namespace {

constexpr std::string_view kReservedPrefixes[] = {"__", "walpost."};

bool IsPattern(std::string_view text) { return text.find('*') != std::string_view::npos; }

}  // namespace

bool IsReservedTopic(std::string_view topic) {
  return std::any_of(
      std::begin(kReservedPrefixes), std::end(kReservedPrefixes),
      [topic](std::string_view prefix) { return topic.substr(0, prefix.size()) == prefix; });
}

bool MatchesPattern(std::string_view topic, std::string_view pattern) {
  std::size_t t = 0;
  std::size_t p = 0;
  std::size_t star = std::string_view::npos;  // the last one seen
  std::size_t tried = 0;                      // the star stands for the text up to here
  while (t < topic.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      tried = t;
    } else if (p < pattern.size() && pattern[p] == topic[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++tried;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool PatternsMeet(std::string_view one, std::string_view other) {
  // By how much of `other` is used up: whether it and what is used up of `one` meet.
  std::vector<bool> meet(other.size() + 1);
  meet[0] = true;
  for (std::size_t used = 0; used < other.size() && other[used] == '*'; ++used) {
    meet[used + 1] = true;
  }
  for (const char c : one) {
    std::vector<bool> next(other.size() + 1);
    next[0] = c == '*' && meet[0];
    for (std::size_t used = 0; used < other.size(); ++used) {
      const bool star = c == '*' || other[used] == '*';
      next[used + 1] = star ? meet[used + 1] || next[used] : meet[used] && c == other[used];
    }
    meet = std::move(next);
  }
  return meet.back();
}

bool IsLegalTopicPattern(std::string_view pattern) {
  std::string name(pattern);
  std::replace(name.begin(), name.end(), '*', 'x');
  return IsLegalTopic(IsPattern(pattern) ? std::string_view(name) : pattern);
}

bool AllowsAnyTopic(std::string_view pattern) {
  return !pattern.empty() && pattern.find_first_not_of('*') == std::string_view::npos;
}

std::vector<std::string> NamesAmong(const std::vector<std::string>& allowed) {
  std::vector<std::string> names;
  std::copy_if(allowed.begin(), allowed.end(), std::back_inserter(names),
               [](const std::string& name) { return !IsPattern(name); });
  return names;
}

TopicRules::TopicRules(const TopicOptions& options, std::string implied)
    : own_(options.own.begin(), options.own.end()),
      by_aggregate_type_(options.by_aggregate_type.begin(), options.by_aggregate_type.end()) {
  std::vector<std::string> written{std::move(implied)};
  for (const auto& [type, topic] : options.by_aggregate_type) {
    written.push_back(topic);
  }
  std::vector<std::string> allowed = options.allowed.empty() ? written : options.allowed;
  written.insert(written.end(), allowed.begin(), allowed.end());
  std::copy_if(written.begin(), written.end(), std::back_inserter(underscored_),
               [](const std::string& name) { return name.starts_with('_'); });
  for (std::string& name : allowed) {
    if (IsPattern(name)) {
      patterns_.push_back(std::move(name));
    } else {
      allowed_.insert(std::move(name));
    }
  }
}

const std::string* TopicRules::Find(std::string_view aggregate_type) const {
  if (by_aggregate_type_.empty()) {
    return nullptr;
  }
  const auto found = by_aggregate_type_.find(aggregate_type);
  return found == by_aggregate_type_.end() ? nullptr : &found->second;
}

bool TopicRules::IsAllowed(std::string_view topic) const {
  const auto matches = [topic](const std::string& pattern) {
    return MatchesPattern(topic, pattern);
  };
  if (topic.starts_with('_') && std::none_of(underscored_.begin(), underscored_.end(), matches)) {
    return false;
  }
  return allowed_.find(topic) != allowed_.end() ||
         std::any_of(patterns_.begin(), patterns_.end(), matches);
}

absl::Status TopicRules::Check(std::string_view topic) const {
  if (!IsLegalTopic(topic)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("it asks for topic '%s', which Kafka does not allow "
                        "(letters, digits, '.', '_', '-', at most 249)",
                        topic.substr(0, 300)));
  }
  if (IsReservedTopic(topic) || own_.find(topic) != own_.end()) {
    return UndeliverableError(
        kTopicNotAllowed, absl::StrFormat("it asks for topic '%s', which belongs to walpost or to "
                                          "Kafka itself: no event goes there",
                                          topic));
  }
  if (!IsAllowed(topic)) {
    return UndeliverableError(
        kTopicNotAllowed,
        absl::StrFormat(
            "it asks for topic '%s', which is not one of "
            "`topics.allowed`%s: add it there, or correct what writes it",
            topic,
            topic.starts_with('_') ? " (only an entry that begins with '_' allows it)" : ""));
  }
  return absl::OkStatus();
}

namespace {

// Java's line terminators, and those of PCRE2: where a '.' and a '$' would differ.
bool HasLineBreak(std::string_view text) {
  return text.find_first_of("\n\v\f\r") != std::string_view::npos ||
         text.find("\u0085") != std::string_view::npos ||
         text.find("\u2028") != std::string_view::npos ||
         text.find("\u2029") != std::string_view::npos;
}

}  // namespace

absl::StatusOr<TopicRouter> TopicRouter::Make(const std::string& regex,
                                              const std::string& replacement) {
  ASSIGN_OR_RETURN(JavaRegex made, JavaRegex::Make(regex, replacement));
  return TopicRouter(std::move(made));
}

absl::StatusOr<std::string_view> TopicRouter::Route(std::string_view value) {
  const auto known = topics_.find(value);
  if (known != topics_.end()) {
    return std::string_view(known->second);
  }
  if (HasLineBreak(value)) {
    return absl::InvalidArgumentError("it has a line break, which no topic's name can have");
  }
  topic_.clear();
  RETURN_IF_ERROR(regex_.Replace(value, &topic_));
  if (!IsLegalTopic(topic_)) {
    return std::string_view(topic_);
  }
  const std::size_t bytes = value.size() + topic_.size();
  if (topics_.size() >= kRememberedMax || bytes_ + bytes > kRememberedBytesMax) {
    topics_.clear();
    bytes_ = 0;
  }
  bytes_ += bytes;
  return std::string_view(topics_.emplace(value, topic_).first->second);
}

}  // namespace walpost::outbox
