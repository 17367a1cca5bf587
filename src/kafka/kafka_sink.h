// KafkaSink - the Sink on librdkafka: idempotent, acks=all, gapless, without time-outs, partitions
// chosen as Java does.
// Why: nothing may block the loop. So metadata is asked for by the BlockingRunner, and a producer
//   is destroyed by a thread of its own.
// Thread: the loop thread, like every Sink. librdkafka's own threads never run our code.
// Units/limits: librdkafka's queue is bounded by `in_flight_bytes_max` and its record count.
// Errors: Create rejects properties that would break a guarantee, by name (kInvalidArgument).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/blocking_runner.h"
#include "base/figures.h"
#include "base/log_event.h"
#include "base/time.h"
#include "delivery/sink.h"

namespace walpost::kafka {

struct KafkaOptions {
  std::string name = "walpost";  // client.id
  // librdkafka's own, verbatim, in the order of the file. bootstrap.servers is required.
  std::vector<std::pair<std::string, std::string>> properties;
  // No piece of these is shown, whatever property they stand at.
  std::vector<std::string> secrets;
  std::size_t in_flight_bytes_max = std::size_t{16} * 1024 * 1024;
  std::chrono::milliseconds metadata_refresh{30'000};
  // So long a topic must have no such partition before a record for it is rejected.
  std::chrono::milliseconds unknown_topic_wait{0};
  // For the answer about a topic's limits; without one the topic is used without them.
  std::chrono::milliseconds limits_timeout{2'000};
};

// A line for the log: brokers down, topic found, partition count changed, librdkafka's own log
// lines.
struct KafkaNotice {
  enum class Severity { kDebug, kInfo, kWarning, kError };

  Severity severity = Severity::kInfo;
  base::LogEvent event = base::LogEvent::kKafkaLog;
  std::string message;
  std::string cause = {};  // what stays the same when it is repeated; empty = the message
};

struct KafkaFacts {
  bool connected = false;  // a broker has answered since the last all-brokers-down
  bool down = false;       // all brokers are out of reach, and none has answered since
  std::string last_error;
  base::WallTime last_error_at;
  std::uint64_t outages = 0;  // times that all brokers came to be out of reach
  // Records that were given back although Kafka may have them: what is sent again is a repeat then.
  std::uint64_t possibly_delivered = 0;
  std::vector<base::BrokerFigures> brokers;  // of the newest statistics; empty without a producer

  void OnAnswer() {
    connected = true;
    down = false;
  }

  void OnError(std::string text, base::WallTime at) {
    last_error = std::move(text);
    last_error_at = at;
  }
};

class KafkaSink : public delivery::Sink {
 public:
  // Checks the properties by creating a throw-away configuration; does not connect. `runner` and
  // `on_notice` must outlive the sink.
  static absl::StatusOr<std::unique_ptr<KafkaSink>> Create(
      KafkaOptions options, base::BlockingRunner* runner,
      std::function<void(const KafkaNotice&)> on_notice);

  virtual const KafkaFacts& facts() const = 0;

  // New passwords, certificates or anything else: the next producer is made with these, when what
  // was sent is acknowledged, or a second later. `options` have passed CheckOptions.
  virtual void Reconfigure(KafkaOptions options) = 0;
};

// Whether librdkafka makes a producer of them; reads certificates, connects to nothing.
// kInvalidArgument says what it rejects.
absl::Status CheckOptions(const KafkaOptions& options);

// The properties as librdkafka will see them, ours included, secrets as ***: for `config show`.
// kInvalidArgument names the first that is rejected or unknown and why.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> EffectiveProperties(
    const KafkaOptions& options);

// Java's DefaultPartitioner for a key: murmur2(key) & 0x7fffffff, modulo the partition count.
std::int32_t PartitionForKey(std::string_view key, std::int32_t partition_count);

// Of it what stands before the modulo, for who does not know the partition count yet.
std::int32_t KeyHash(std::string_view key);

}  // namespace walpost::kafka
