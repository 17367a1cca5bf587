// EnsureTopic - a topic of walpost's own, made by `init`.
// Thread: blocking, any.
// Errors: kUnavailable (Kafka does not answer), kPermissionDenied, kFailedPrecondition (the topic
//   is there, but is not as it must be).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

struct TopicSpec {
  std::string name;
  std::int32_t partitions = 1;
  std::vector<std::pair<std::string, std::string>> config;
};

enum class Ensured { kCreated, kExists };

// The replication factor is 3, or the number of brokers when there are fewer. Waits until the
// broker it asks shows a new one, for `timeout` at most.
absl::StatusOr<Ensured> EnsureTopic(const KafkaOptions& options, const TopicSpec& spec,
                                    std::chrono::milliseconds timeout);

// What is remembered in one partition for each pipeline: the newest record of each key is kept.
TopicSpec ProgressTopic(const std::string& name);

// A log that keeps everything, and takes larger records than the topics of events usually do.
TopicSpec DeadLetterTopic(const std::string& name);

}  // namespace walpost::kafka
