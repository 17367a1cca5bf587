// ReadTopicPolicy - whether a topic is compacted.
// Why: where compaction may have removed a record, its absence does not show that it was never there.
//   A configuration that cannot be read says nothing, and never "not compacted".
// Thread: blocking, any.
// Units/limits: asks kPolicyAsks times, of `timeout` each, and once when the answer is that it may not.
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

enum class Compaction : std::uint8_t { kNo, kYes, kUnknown };

constexpr int kPolicyAsks = 3;

// Fails when the answer has no cleanup.policy.
absl::StatusOr<TopicLimits> ReadTopicPolicy(rd_kafka_t* client, const std::string& topic,
                                            std::chrono::milliseconds timeout);

// Of topics that exist. kFailedPrecondition: names the first of which it is not known, and the right.
absl::Status CheckCompactionIsKnown(const KafkaOptions& options,
                                    const std::set<std::string>& topics,
                                    std::chrono::milliseconds timeout);

// Names the topic, and the right that is needed.
std::string UnknownCompactionText(const std::string& topic, const std::string& why);

}  // namespace walpost::kafka
