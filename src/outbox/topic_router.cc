#include "outbox/topic_router.h"

#include <utility>

#include "base/status.h"
#include "outbox/topic_template.h"

namespace walpost::outbox {
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
