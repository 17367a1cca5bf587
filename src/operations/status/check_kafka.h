// CheckKafka - the part of `check` about the cluster: whether it answers, and whether the topics
// that are known beforehand keep what they are given.
// Thread: blocking.
// Source: https://kafka.apache.org/documentation/#topicconfigs.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "kafka/kafka_sink.h"
#include "operations/outcome.h"

namespace walpost::operations {

struct CheckKafkaOptions {
  std::string name;  // of the pipeline
  kafka::KafkaOptions kafka;
  std::vector<std::string> topics;  // that are known without any event
  std::string progress_topic;       // empty = none
  std::string dead_letter_topic;    // empty = `delivery.on_undeliverable` needs none
  std::chrono::milliseconds timeout{5'000};
};

struct CheckKafkaResult {
  std::vector<CheckLine> lines;
  bool unreachable = false;
};

CheckKafkaResult CheckKafka(const CheckKafkaOptions& options);

}  // namespace walpost::operations
