// Topic leaders - what the brokers say of a topic's partitions and their leaders.
// Why: a broker that is cut off from the controller goes on answering with what it knew before. A
//   topic that it does not know may be there, and records that it leads may not be the last ones.
// Thread: blocking, any.
// Errors: as TopicStatus. That a topic is not seen is believed as FindUnseenTopics believes it.
// Source: docs/design.md, fact 18.
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kafka/client.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_look_up.h"

namespace walpost::kafka {

// For another broker to answer, of those that a client has just connected to.
constexpr std::chrono::milliseconds kNextBrokerFor{200};

// What the brokers say of a topic.
struct TopicLeaders {
  std::vector<std::int32_t>
      leaders;          // of each partition, the largest number of them; -1 = nobody names one
  std::string dispute;  // brokers contradict each other: in what; empty = they agree
};

// Brokers are asked until all have answered, or no other one has for kNextBrokerFor. `client` must
// be new: after a second it asks only the one that it used last.
absl::StatusOr<TopicLeaders> AskForLeaders(const KafkaOptions& options, rd_kafka_t* client,
                                           const std::string& topic,
                                           std::chrono::milliseconds timeout,
                                           const UnseenFor& unseen_for = {});

// The number of its partitions. `client` knows them, if there was time. Else as AskForLeaders.
absl::StatusOr<std::int32_t> CountPartitions(const KafkaOptions& options, rd_kafka_t* client,
                                             const std::string& topic,
                                             std::chrono::milliseconds timeout,
                                             const UnseenFor& unseen_for = {});

// AskAgreedLeaders - asks the leaders of a topic, when all brokers name the same ones.
// Why: a leader that is cut off from the controller may still answer clients, while another one
//   leads and takes records. What it says of its end is older than it seems.
// Thread: blocking, any; without `ask` bounded by `timeout`.
// Errors: as AskForLeaders; kUnavailable when brokers contradict each other for so long.
// Source: docs/design.md, fact 18. librdkafka 2.0 does not give a leader's epoch, so which broker
//   is right is not known.

// May be called several times: the last one counts.
using AskLeaders = std::function<rd_kafka_resp_err_t(rd_kafka_t* client, std::int32_t partitions)>;

// A consumer that knows the topic and reads as `isolation` says. The brokers that answer named the
// same leaders before and after `ask`, which asks with a consumer to whom nothing is aborted or
// open: a partition's end is its last record.
absl::StatusOr<Producer> AskAgreedLeaders(const KafkaOptions& options, const std::string& topic,
                                          std::chrono::milliseconds timeout, const AskLeaders& ask,
                                          Isolation isolation = Isolation::kReadUncommitted);

}  // namespace walpost::kafka
