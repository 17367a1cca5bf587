// EnsureTopic - a topic of walpost's own, made by `init`.
// Thread: blocking, any.
// Errors: kUnavailable (Kafka does not answer), kPermissionDenied, kFailedPrecondition (the topic
//   is there, but is not as it must be).
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

// ReadTopicPolicy - whether a topic is compacted.
// Why: where compaction may have removed a record, its absence does not show that it was never
//   there. A configuration that cannot be read says nothing, and never "not compacted".
// Thread: blocking, any.
// Units/limits: asks kPolicyAsks times, of `timeout` each, and once when the answer is that it may
// not.
enum class Compaction : std::uint8_t { kNo, kYes, kUnknown };

constexpr int kPolicyAsks = 3;

// Fails when the answer has no cleanup.policy.
absl::StatusOr<TopicLimits> ReadTopicPolicy(rd_kafka_t* client, const std::string& topic,
                                            std::chrono::milliseconds timeout);

// Of topics that exist. kFailedPrecondition: names the first of which it is not known, and the
// right.
absl::Status CheckCompactionIsKnown(const KafkaOptions& options,
                                    const std::set<std::string>& topics,
                                    std::chrono::milliseconds timeout);

// Names the topic, and the right that is needed.
std::string UnknownCompactionText(const std::string& topic, const std::string& why);

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

// TopicsNotToRead - topics that walpost's Kafka user may DESCRIBE and not READ.
// Why: only an attempt to read shows it. A verb that reads topics after it has changed something
// asks first.
// Thread: blocking, any.
// Errors: kUnavailable where a topic's leader does not answer in time; those of making a client.

// Each of `topics` exists.
absl::StatusOr<std::vector<std::string>> TopicsNotToRead(const KafkaOptions& options,
                                                         const std::vector<std::string>& topics,
                                                         std::chrono::milliseconds timeout);

// CheckCluster - a blocking look at the cluster, for `check`: brokers and, for each topic, its
// partitions and the settings that decide what it keeps, or why they are not known.
// Thread: blocking, up to the time-out for each question.
// Errors: kUnavailable when no broker answers.
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
  absl::Status found;  // as TopicStatus, or kUnavailable where brokers do not say
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
