// BulkWriter - writes many records in their order, without waiting for each: what verbs send from a
// table.
// Why: as careful as the sink, but with an end: after the first record that fails nothing more is
//   written, and nothing has overtaken it, so that who is asked to go on knows from where.
// Thread: one owner; blocking.   Lifetime: a record is copied before Write returns.
// Units/limits: at most in_flight_bytes_max of the options are unacknowledged. `patience`: how long
//   without any acknowledgement.
// Errors: as RecordWriter's; kInvalidArgument names the event's id.
// Source: docs/design.md, "Facts"; one request in flight, since a broker takes any first sequence
//   number of a new producer.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/record.h"
#include "kafka/handles.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

class BulkWriter {
 public:
  BulkWriter(KafkaOptions options, std::chrono::milliseconds patience)
      : options_(std::move(options)), patience_(patience) {}

  // The time of the record is that of the produce.
  absl::Status Write(const envelope::Record& record);

  // Until everything written is acknowledged.
  absl::Status Flush();

  // False from the first report on that tells of a failure; a record that Write itself refuses does no
  // harm to others.
  bool usable() const { return failure_.ok(); }

 private:
  struct Target {
    std::int32_t partitions = 0;
    TopicLimits limits;
  };

  absl::StatusOr<const Target*> TargetOf(const std::string& topic);
  absl::Status MakeClient();
  // Until no more are unacknowledged.
  absl::Status AwaitAtMost(std::size_t bytes);
  // Whether there was any.
  bool TakeReports(std::chrono::milliseconds wait);

  const KafkaOptions options_;
  const std::chrono::milliseconds patience_;
  Producer client_;  // null until needed
  ProducerLimits producer_limits_;
  std::map<std::string, Target> targets_;
  std::size_t in_flight_bytes_ = 0;
  absl::Status failure_;  // of the first record that failed
};

}  // namespace walpost::kafka
