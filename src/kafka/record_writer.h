// RecordWriter - writes one record at a time and waits for its acknowledgement: what verbs of an
// operator send.
// Why: as safe as the sink (idempotent, acks=all, partition as Java chooses it), but with an
//   end: an operator waits for it, and who is in doubt may do it again.
// Thread: one owner; blocking, bounded by `timeout` for each step of a record.
// Units/limits: records up to the topic's limit, which only the broker judges.
// Errors: kNotFound (no such topic), kPermissionDenied, kInvalidArgument (the topic does not take
//   this record: too large, not valid, no such partition), kUnavailable (no acknowledgement in
//   time: whether the record arrived is not known).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "envelope/record.h"
#include "kafka/handles.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

class RecordWriter {
 public:
  RecordWriter(KafkaOptions options, std::chrono::milliseconds timeout)
      : options_(std::move(options)), timeout_(timeout) {}

  // The record's offset. Its time is moved, as the sink does, where it would cost the record.
  absl::StatusOr<std::int64_t> Write(const envelope::Record& record, base::WallTime now);

 private:
  absl::Status Connect();
  absl::StatusOr<std::int32_t> PartitionsOf(const std::string& topic);
  std::int64_t TimestampOf(const envelope::Record& record, const std::string& topic,
                           base::WallTime now);
  absl::StatusOr<std::int64_t> AwaitReport(const std::string& topic);

  const KafkaOptions options_;
  const std::chrono::milliseconds timeout_;
  Producer client_;  // null until needed, and after a record whose fate is not known
  std::map<std::string, std::int32_t> partitions_;
  std::map<std::string, TopicLimits> limits_;
};

}  // namespace walpost::kafka
