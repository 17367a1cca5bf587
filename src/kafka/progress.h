// ReadProgress, WriteProgress - the records of delivery.progress_topic, outside of a stream.
// Why: `run` must know before START what is remembered; verbs write what an operator decided.
// Thread: blocking, any; bounded by `timeout`, but for a topic with many records.
// Errors: kNotFound (no such topic), kPermissionDenied (for kUnknownFor), kDataLoss (nothing can be
//   read), kUnimplemented (a newer walpost went on), kFailedPrecondition (the topic is not as it
//   must be), kUnavailable (Kafka does not answer, which passes by itself).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/source_facts.h"
#include "envelope/control_records.h"
#include "envelope/record.h"
#include "kafka/kafka_sink.h"
#include "kafka/topics.h"

namespace walpost::kafka {

// ScanTopic - every record of a topic from a time on, up to its end as of the call. Not those of
// aborted transactions; what is behind an open one is waited for.
// Why: only the topic shows what was sent before: a verb that goes on after a crash, closes a gap
//   or compares a topic with its table reads what is there.
// Thread: blocking, any.
// Lifetime: views in ScannedRecord end with the callback.
// Units/limits: `timeout` is for each step. Where Kafka gives no record it ends after about twice
//   that, since readers that get nothing are replaced. Records of one partition come in order. A
//   time means what Kafka makes of it: the first record of the partition that is not older, and all
//   behind it.
// Errors: kNotFound (no such topic), kPermissionDenied, kUnavailable (Kafka does not answer); and
//   what the callback returns, which ends the scan.
struct ScannedRecord {
  std::int32_t partition = 0;
  std::int64_t offset = 0;
  std::int64_t timestamp_ms = 0;
  std::optional<std::string_view> key;
  std::optional<std::string_view> value;
  std::span<const envelope::RecordHeader> headers;

  // Without data: there is none of this name.
  std::string_view Header(std::string_view name) const;

  // Sent again by a verb, or as a dead letter that was retried.
  bool redelivered() const {
    return std::any_of(headers.begin(), headers.end(),
                       [](const auto& header) { return header.name == envelope::kRedelivery; });
  }
};

using OnScannedRecord = std::function<absl::Status(const ScannedRecord&)>;

// Since when a partition shows what was written to it. Who sends beside the stream gives a record
// an older time, or one of another clock: so only records of the stream show it.
struct PartitionBegin {
  // Of the first one; INT64_MAX = there is none; INT64_MIN = the partition was read from a later
  // one on, as no partition of the topic is cut.
  std::int64_t first_ms = INT64_MAX;
  bool cut = false;  // what stood before was deleted; else nothing did
  std::int64_t latest_ms = 0;
  // None of them is so much older than one before it; 1 where times only rise. They fall where a
  // pipeline sends again after a crash, or another one lags behind.
  std::int64_t back_ms = 0;

  // Of the next record of the stream.
  void Add(std::int64_t time_ms);

  // What is not older stood behind the first one, if what stood before it was as far out of order
  // as what stands behind it.
  std::int64_t BeginsMs() const {
    return first_ms > INT64_MAX - back_ms ? INT64_MAX : first_ms + back_ms;
  }
};

// Why a record that was written may not be there.
struct TopicGaps {
  // What is older may have been deleted, in one partition at least; nothing = all of it is there.
  // INT64_MAX: a partition that had records of the stream has none.
  std::optional<std::int64_t> begins_ms;
  std::vector<PartitionBegin> partitions;
  // A record lies in another partition than its key names now: partitions were added, or its writer
  // chose.
  bool keys_elsewhere = false;
  // Whether records go when their key has a later one. Unknown: `compaction_unknown` says why.
  Compaction compaction = Compaction::kNo;
  std::string compaction_unknown;
  // Where records go when their key has a later one: a record without a value stays at least as
  // long, and goes, too. Nothing = of what was read, no record is gone.
  std::optional<std::chrono::milliseconds> tombstone_retention;
  // Of a record that was not compressed; nothing = not known, or they are compressed, and only the
  // broker knows.
  std::optional<std::int64_t> message_bytes_max;

  // Where an event of now goes that asks for a partition, or has a key (KeyHash); -1 = neither, or
  // its key may have gone to any.
  std::int32_t PartitionOf(std::int32_t asked, std::optional<std::int32_t> key_hash) const;

  // Since when one partition has what was written to it; of -1, begins_ms. One that lost nothing
  // may be newer than an event, which then went to another one: it begins with its first record or
  // at begins_ms, whichever is earlier.
  std::optional<std::int64_t> BeginsMs(std::int32_t partition) const;

  // All of them, where events seem that much younger than their records; INT64_MAX: the times of
  // records show nothing.
  void BeginLater(std::int64_t by_ms);
};

absl::StatusOr<TopicGaps> ScanTopic(const KafkaOptions& options, const std::string& topic,
                                    std::int64_t from_ms, const OnScannedRecord& on_record,
                                    std::chrono::milliseconds timeout);

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

// The pipeline's records up to the end of the topic: of the newest epoch, for each cluster and
// timeline the highest position, of which the last written counts. What is no progress is passed
// over: only somebody else wrote it. It is kDataLoss when nothing else is there. It is
// kUnimplemented when a record of another format is there, and none of a higher epoch: see
// Overrules. With `unread`, for verbs that write a new record, neither is an error.
absl::StatusOr<std::vector<base::Progress>> ReadProgress(const KafkaOptions& options,
                                                         const ProgressKey& progress_key,
                                                         const ReadProgressOptions& how);

// Returns when Kafka has acknowledged it.
absl::Status WriteProgress(const KafkaOptions& options, const ProgressKey& progress_key,
                           const base::Progress& progress, std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
