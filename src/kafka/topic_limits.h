// TopicLimits - what a topic's configuration says about the records it takes, and the sizes that it
// is held against.
// Why: a broker fails a whole batch for one record that is too large, dated ahead or without the
//   key that compaction needs, the innocent ones too; so these are seen to before a record reaches
//   a batch.
// Thread: ReadTopicLimits blocks up to its time-out, on a helper thread; the rest is pure.
// Units/limits: bytes as the broker counts them, on the wire and uncompressed.
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "envelope/record.h"

namespace walpost::kafka {

// A clock that far ahead is not worth a change.
constexpr std::chrono::milliseconds kClockSlack{1'000};

// Where a topic's limits are not known: it may delete what is older at once.
constexpr std::chrono::milliseconds kUnknownAgeMax{10'000};

struct TopicLimits {
  std::optional<std::int64_t> message_bytes_max;  // max.message.bytes; nullopt = not known
  // A broker may reject a batch that is larger than a segment, or put it into one of its own.
  std::optional<std::int64_t> segment_bytes;
  // A record dated further back would be rejected, or deleted before it is read; nullopt = no
  // limit.
  std::optional<std::chrono::milliseconds> age_max = kUnknownAgeMax;
  // A record dated further ahead gets the present.
  std::chrono::milliseconds ahead_max = kClockSlack;
  bool uncompressed = false;        // compression.type: the broker unpacks what comes
  bool recompresses = false;        // or packs it anew
  bool has_cleanup_policy = false;  // the answer had one: the next two follow from it
  bool compacts = false;
  bool deletes = false;
  std::optional<std::chrono::milliseconds> retention;  // where it deletes; nullopt = without end
  // Where it compacts: what is newest of its key, or has deleted it, stays at least as long.
  std::chrono::milliseconds tombstone_retention{0};
  std::optional<std::int64_t> min_insync_replicas;
};

// batch.size of librdkafka, unless the user sets it or a topic takes less.
constexpr std::int64_t kBatchBytes = 400'000;

// What a producer is made with, because librdkafka cannot change it later.
struct ProducerLimits {
  std::optional<std::int64_t> batch_bytes_max;  // of a BulkWriter's smallest topic
  std::int64_t message_bytes_max = 1'048'588;   // Kafka's default for a topic
};

// A larger record is not sent, compressed or not, unless the user sets message.max.bytes. A broker
// that gets a request beyond socket.request.max.bytes, 100 MiB by default, answers nothing and ends
// the connection: that looks as if it were away, and librdkafka would send the same again for ever.
constexpr std::int64_t kRequestBytesMax = std::int64_t{90} * 1024 * 1024;

// For the answer about one topic.
constexpr std::chrono::milliseconds kLimitsTimeout{5'000};

// Fails when the topic may not be described, or nobody answers in time.
absl::StatusOr<TopicLimits> ReadTopicLimits(rd_kafka_t* producer, const std::string& topic,
                                            std::chrono::milliseconds timeout);

// socket.request.max.bytes of a broker; fails as the above.
absl::StatusOr<std::int64_t> ReadRequestBytesMax(rd_kafka_t* client, std::int32_t broker,
                                                 std::chrono::milliseconds timeout);

// Of a topic's configuration, by name.
TopicLimits LimitsOf(
    const std::vector<std::pair<std::string_view, std::string_view>>& configuration);

// How large a batch for the topic may be: a little less than it takes, because a broker that packs
// it anew looks at the size once more. nullopt = not known.
std::optional<std::int64_t> BatchBytesFor(const TopicLimits& limits);

// A batch of this record alone, as the broker measures it against max.message.bytes.
std::int64_t BatchBytesOf(const envelope::Record& record);

// At least what librdkafka counts a record for when it fills a request.
std::int64_t RequestBytesOf(const envelope::Record& record);

// Whether brokers reject it because compaction needs a key, which may be empty.
bool LacksKey(const envelope::Record& record, const TopicLimits& limits);

// Whether it is larger than the topic takes; nullopt = not known, as where the producer compresses.
// A record that is not may still grow: a broker that packs it anew looks at the size once more.
std::optional<bool> IsTooLarge(const envelope::Record& record, const TopicLimits& limits,
                               bool compressed);

// What such a rejection depends on in the topic: with a larger value it takes more. 0 = not known,
// or nothing.
std::int64_t LimitOf(delivery::FailureKind rejection, const TopicLimits& limits);

// The smallest of these that takes the record; 0 = not known. A record that such a limit takes may
// still grow: a broker that packs it anew looks at the size once more.
std::int64_t LimitWantedBy(const envelope::Record& record, delivery::FailureKind rejection);

// Whether a leader that rejects a record for that may be behind: it learns of a change later than
// others.
bool MayBeBehind(delivery::FailureKind rejection, const envelope::Record& record);

// The time to produce a record with: its own, unless that would cost the record or its batch.
// `now` at the epoch = not known.
std::int64_t SafeTimestampMs(std::int64_t timestamp_ms, const TopicLimits& limits,
                             base::WallTime now);

}  // namespace walpost::kafka
