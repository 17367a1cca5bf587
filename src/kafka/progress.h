// ReadProgress, WriteProgress - the records of delivery.progress_topic, outside of a stream.
// Why: `run` must know before START what is remembered; verbs write what an operator decided.
// Thread: blocking, any; bounded by `timeout`.
// Errors: kNotFound (no such topic), kPermissionDenied, kDataLoss (a record that cannot be read),
//   kFailedPrecondition (the topic is not as it must be), kUnavailable (Kafka does not answer, which
//   passes by itself).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/source_facts.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

struct ProgressPlace {
  std::string topic;
  std::string name;  // of the pipeline: the records' key
};

// The pipeline's records up to the end of the topic: for each epoch, cluster and timeline the
// highest position, of which the last written counts.
absl::StatusOr<std::vector<base::Progress>> ReadProgress(const KafkaOptions& options,
                                                         const ProgressPlace& place,
                                                         std::chrono::milliseconds timeout);

// Returns when Kafka has acknowledged it.
absl::Status WriteProgress(const KafkaOptions& options, const ProgressPlace& place,
                           const base::Progress& progress, std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
