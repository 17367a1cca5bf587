// TopicRouter - the value of the routing column to the topic, as Debezium's Event Router does.
// Why: few values route many rows, so each is matched once and remembered.
// Thread: one owner.   Lifetime: a topic's text lives until the next Route.
// Limits: kRememberedMax values are remembered, of kRememberedBytesMax together: who writes events
//   chooses them. Only a legal topic's value is, and one that is not much longer than a topic may be.
//   Nothing is allocated for one that is.
// Errors: Make: as JavaRegex. Route: kInvalidArgument (an undeliverable event).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "outbox/java_regex.h"

namespace walpost::outbox {

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
