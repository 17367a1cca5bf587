// Client - a librdkafka client for one blocking job, and the questions such jobs ask.
// Why: internal to the jobs of verbs and of the helper; the sink has its own.
// Thread: one owner; blocking.
#pragma once

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/figures.h"
#include "envelope/record.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

// Handles - librdkafka's C objects as owners, one line each.
// Thread: as librdkafka says; ProducerHandle may be released on any thread: destroying a producer
//   can block, so a thread of its own does it.
struct ConfDeleter {
  void operator()(rd_kafka_conf_t* conf) const { rd_kafka_conf_destroy(conf); }
};

struct EventDeleter {
  void operator()(rd_kafka_event_t* event) const { rd_kafka_event_destroy(event); }
};

struct QueueDeleter {
  void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
};

struct TopicDeleter {
  void operator()(rd_kafka_topic_t* topic) const { rd_kafka_topic_destroy(topic); }
};

struct MessageDeleter {
  void operator()(rd_kafka_message_t* message) const { rd_kafka_message_destroy(message); }
};

struct MetadataDeleter {
  void operator()(const rd_kafka_metadata_t* metadata) const {
    rd_kafka_metadata_destroy(metadata);
  }
};

using Conf = std::unique_ptr<rd_kafka_conf_t, ConfDeleter>;
using Event = std::unique_ptr<rd_kafka_event_t, EventDeleter>;
using Queue = std::unique_ptr<rd_kafka_queue_t, QueueDeleter>;
using Topic = std::unique_ptr<rd_kafka_topic_t, TopicDeleter>;
using Message = std::unique_ptr<rd_kafka_message_t, MessageDeleter>;
using Metadata = std::unique_ptr<const rd_kafka_metadata_t, MetadataDeleter>;

// Shared by the sink and by a metadata look-up that may still run when its session ends.
using Producer = std::shared_ptr<rd_kafka_t>;

// Destroys on a thread that ends with it.
Producer OwnProducer(rd_kafka_t* producer);

// With the producer's topic properties; null for a name that is not legal.
Topic NewTopic(rd_kafka_t* producer, const std::string& name, void* opaque);

// Waits until every producer given up so far is destroyed; false when that took longer.
bool WaitForDestroyed(std::chrono::milliseconds timeout);

// UseMonotonicWaits - makes librdkafka's waits independent of the wall clock.
// Why: "all waiting is by the monotonic clock" must hold for the libraries, too. A machine's clock
//   is set back when it was ahead, and nobody expects that to stop deliveries for as long.
// How: the program's own cnd_timedwait comes before the C library's; calling this function is what
//   links it in.
// Thread: any.
// Source: C11 7.26.3.5; librdkafka 2.0.2, src/tinycthread_extra.c.
void UseMonotonicWaits();

// LibrdkafkaVersion - of the library loaded, "2.0.2".
std::string LibrdkafkaVersion();

// Whether records of transactions that are open, or were aborted, are read, too.
enum class Isolation { kReadUncommitted, kReadCommitted };

// Brokers by id. One that is cut off from the controller goes on answering with what it knew
// before, and a client asks the one that it used last, again and again. So what matters is asked of
// each.
struct Brokers {
  std::set<std::int32_t> known;
  std::set<std::int32_t> answered;

  void OnAnswer(const rd_kafka_metadata_t& metadata);

  std::set<std::int32_t> unanswered() const {
    std::set<std::int32_t> left = known;
    std::erase_if(left, [this](std::int32_t id) { return answered.contains(id); });
    return left;
  }

  bool all_answered() const { return !known.empty() && unanswered().empty(); }
};

// With the user's properties, as a producer that sends one at a time has them.
absl::StatusOr<Producer> MakeClient(const KafkaOptions& options, rd_kafka_type_t type,
                                    const ProducerLimits& limits = {},
                                    Isolation isolation = Isolation::kReadUncommitted);

// kNotFound, kPermissionDenied, or kUnavailable for everything that may pass by itself.
absl::Status TopicStatus(const std::string& topic, rd_kafka_resp_err_t error);

// Of a topic that CountPartitions has found: a broker that has just started may lead a partition
// and not know it yet. So that it is unknown passes by itself, too.
absl::Status FoundTopicStatus(const std::string& topic, rd_kafka_resp_err_t error);

// Of a topic in an answer; -1 = the broker names none.
std::vector<std::int32_t> LeadersOf(const rd_kafka_metadata_topic_t& topic);

// For each partition the offset `of` a time in ms, RD_KAFKA_OFFSET_BEGINNING or
// RD_KAFKA_OFFSET_END. rd_kafka_query_watermark_offsets would go on for minutes where a broker does
// not answer, whatever its time-out.
rd_kafka_resp_err_t AskOffsets(rd_kafka_t* client, const std::string& topic,
                               std::int32_t partitions, std::int64_t of,
                               std::chrono::milliseconds timeout,
                               std::vector<std::int64_t>* offsets);

// Until `deadline`, rounded up; never negative.
std::chrono::milliseconds TimeLeft(std::chrono::steady_clock::time_point deadline);

// The caller owns the headers until a produce succeeds.
rd_kafka_headers_t* MakeHeaders(std::span<const envelope::RecordHeader> headers);

// Copies key and value; takes `headers` when it succeeds. Its report has `opaque` as _private.
rd_kafka_resp_err_t Produce(rd_kafka_t* client, const char* topic, std::int32_t partition,
                            const std::optional<std::string_view>& key,
                            const std::optional<std::string_view>& value,
                            rd_kafka_headers_t* headers, std::uint64_t opaque);

// Those of a consumed message, as views into it, in place of what `headers` held.
void ReadHeaders(const rd_kafka_message_t& message, std::vector<envelope::RecordHeader>* headers);

// What was produced: topic, key, value and headers, as views into the message and `headers`.
envelope::Record RecordIn(const rd_kafka_message_t& message,
                          std::vector<envelope::RecordHeader>* headers);

// ReadBrokers - the brokers of one of librdkafka's statistics, without reading what follows them.
// Why: the text also holds every partition of every topic, behind the brokers; its reader runs on
//   the loop and stops where they end.
// Thread: any; pure.
// Errors: none. What cannot be read is left out.
// Source: librdkafka's STATISTICS.md.
//
// By address; the names that were only bootstrapped with, and roles such as a coordinator, are no
// brokers.
std::vector<base::BrokerFigures> ReadBrokers(std::string_view statistics);

}  // namespace walpost::kafka
