// CheckCluster - a blocking look at the cluster, for `check`: brokers and, for each topic, its
// partitions and the settings that decide what it keeps, or why they are not known.
// Thread: blocking, up to the time-out for each question.
// Errors: kUnavailable when no broker answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

struct TopicSettings {
  std::optional<std::int64_t> message_bytes_max;  // max.message.bytes
  std::optional<std::int64_t> min_insync_replicas;
  std::optional<std::chrono::milliseconds> retention;  // nullopt = without end, or not known
  bool compacts = false;                               // cleanup.policy
  bool deletes = false;
  bool uncompressed = false;  // compression.type
};

struct TopicCheck {
  std::string topic;
  std::int32_t partitions = 0;
  std::int32_t replication_factor = 0;
  std::string error;                      // empty = found
  std::optional<TopicSettings> settings;  // nullopt: `settings_error` says why
  std::string settings_error;
};

struct ClusterCheck {
  std::vector<std::string> brokers;
  // socket.request.max.bytes, the least of all; nullopt = not known of any.
  std::optional<std::int64_t> request_bytes_max;
  std::vector<TopicCheck> topics;  // as asked for
};

absl::StatusOr<ClusterCheck> CheckCluster(const KafkaOptions& options,
                                          const std::vector<std::string>& topics,
                                          std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
