// TopicsNotToRead - topics that walpost's Kafka user may DESCRIBE and not READ.
// Why: only an attempt to read shows it. A verb that reads topics after it has changed something asks first.
// Thread: blocking, any.
// Errors: kUnavailable where a topic's leader does not answer in time; those of making a client.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

// Each of `topics` exists.
absl::StatusOr<std::vector<std::string>> TopicsNotToRead(const KafkaOptions& options,
                                                         const std::vector<std::string>& topics,
                                                         std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
