// ScanTopic - every record of a topic from a time on, up to its end as of the call. Not those of aborted
// transactions; what is behind an open one is waited for.
// Why: only the topic shows what was sent before: a verb that goes on after a crash, closes a gap or
//   compares a topic with its table reads what is there.
// Thread: blocking, any.
// Lifetime: views in ScannedRecord end with the callback.
// Units/limits: `timeout` is for each step. Where Kafka gives no record it ends after about twice that, since
//   readers that get nothing are replaced. Records of one partition come in order. A time means
//   what Kafka makes of it: the first record of the partition that is not older, and all behind it.
// Errors: kNotFound (no such topic), kPermissionDenied, kUnavailable (Kafka does not answer); and
//   what the callback returns, which ends the scan.
#pragma once

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
#include "envelope/record.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_policy.h"

namespace walpost::kafka {

struct ScannedRecord {
  std::int32_t partition = 0;
  std::int64_t offset = 0;
  std::int64_t timestamp_ms = 0;
  std::optional<std::string_view> key;
  std::optional<std::string_view> value;
  std::span<const envelope::RecordHeader> headers;

  // Without data: there is none of this name.
  std::string_view Header(std::string_view name) const;
};

using OnScannedRecord = std::function<absl::Status(const ScannedRecord&)>;

// Since when a partition shows what was written to it.
struct PartitionBegin {
  // Of its first record; INT64_MAX = it has none; INT64_MIN = it was read from a later one on.
  std::int64_t first_ms = INT64_MIN;
  bool cut = false;  // what stood before was deleted; else nothing did
};

// Why a record that was written may not be there.
struct TopicGaps {
  // What is older was deleted, in one partition at least; nothing = all of it is there. INT64_MAX: a
  // partition that had records has none.
  std::optional<std::int64_t> begins_ms;
  std::vector<PartitionBegin> partitions;
  // A record lies in another partition than its key names now: partitions were added, or its writer chose.
  bool keys_elsewhere = false;
  // Whether records go when their key has a later one. Unknown: `compaction_unknown` says why.
  Compaction compaction = Compaction::kNo;
  std::string compaction_unknown;
  // Where records go when their key has a later one: a record without a value stays at least as long, and
  // goes, too. Nothing = of what was read, no record is gone.
  std::optional<std::chrono::milliseconds> tombstone_retention;
  // Of a record that was not compressed; nothing = not known, or they are compressed, and only the
  // broker knows.
  std::optional<std::int64_t> message_bytes_max;

  // Where an event of now goes that asks for a partition, or has a key (KeyHash); -1 = neither, or its
  // key may have gone to any.
  std::int32_t PartitionOf(std::int32_t asked, std::optional<std::int32_t> key_hash) const;

  // Since when one partition has what was written to it; of -1, begins_ms. One that lost nothing may be
  // newer than an event, which then went to another one: it begins with its first record or at begins_ms,
  // whichever is earlier.
  std::optional<std::int64_t> BeginsMs(std::int32_t partition) const;
};

absl::StatusOr<TopicGaps> ScanTopic(const KafkaOptions& options, const std::string& topic,
                                    std::int64_t from_ms, const OnScannedRecord& on_record,
                                    std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
