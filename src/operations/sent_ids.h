// SentIds - which events of a kind of redelivery a topic holds since a time, by id.
// Why: who goes on after a crash must not send twice what it had sent but not noted.
// Thread: one owner; blocking.
// Units/limits: an id takes some 100 bytes; a topic is read when it is first asked about.
// Errors: as kafka::ScanTopic; a topic that does not exist holds nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "kafka/kafka_sink.h"

namespace walpost::operations {

class SentIds {
 public:
  SentIds(const kafka::KafkaOptions& kafka, std::string kind, std::int64_t since_ms,
          std::chrono::milliseconds timeout)
      : kafka_(kafka), kind_(std::move(kind)), since_ms_(since_ms), timeout_(timeout) {}

  absl::StatusOr<bool> Contains(std::string_view topic, std::string_view id);

 private:
  using Ids = std::set<std::string, std::less<>>;

  absl::StatusOr<const Ids*> Of(std::string_view topic);

  const kafka::KafkaOptions& kafka_;
  const std::string kind_;
  const std::int64_t since_ms_;
  const std::chrono::milliseconds timeout_;
  std::map<std::string, Ids, std::less<>> topics_;
};

}  // namespace walpost::operations
