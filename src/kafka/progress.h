// ReadProgress, WriteProgress - the records of delivery.progress_topic, outside of a stream.
// Why: `run` must know before START what is remembered; verbs write what an operator decided.
// Thread: blocking, any; bounded by `timeout`, but for a topic with many records.
// Errors: kNotFound (no such topic), kPermissionDenied (for kUnknownFor), kDataLoss (nothing can be read),
//   kUnimplemented (a newer walpost went on), kFailedPrecondition (the topic is not as it must be),
//   kUnavailable (Kafka does not answer, which passes by itself).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/source_facts.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

struct ProgressKey {
  std::string topic;
  std::string name;  // of the pipeline: the records' key
};

// Records with the pipeline's key that cannot be read.
struct UnreadProgress {
  std::uint64_t count = 0;
  std::string detail;  // of the one with that epoch, else of the last one
  // The highest of those of another format.
  std::optional<std::uint64_t> newer_epoch;

  // A newer walpost may have overruled what can be read.
  bool Overrules(const std::vector<base::Progress>& kept) const;
};

// What was read of a topic.
struct ProgressRead {
  std::vector<base::Progress> kept;
  UnreadProgress unread;
  std::int64_t next = 0;  // offset
};

struct ReadProgressOptions {
  // Until its end is known, and then for each record: a topic that is not compacted may have many.
  std::chrono::milliseconds timeout{10'000};
  UnreadProgress* unread = nullptr;
  ProgressRead* so_far = nullptr;  // goes on behind it, and adds to it
};

// The pipeline's records up to the end of the topic: of the newest epoch, for each cluster and timeline
// the highest position, of which the last written counts. What is no progress is passed over: only
// somebody else wrote it. It is kDataLoss when nothing else is there. It is kUnimplemented when a record of
// another format is there, and none of a higher epoch: see Overrules. With `unread`, for verbs that write a
// new record, neither is an error.
absl::StatusOr<std::vector<base::Progress>> ReadProgress(const KafkaOptions& options,
                                                         const ProgressKey& progress_key,
                                                         const ReadProgressOptions& how);

// Returns when Kafka has acknowledged it.
absl::Status WriteProgress(const KafkaOptions& options, const ProgressKey& progress_key,
                           const base::Progress& progress, std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
