// AskAgreedLeaders - asks the leaders of a topic, when all brokers name the same ones.
// Why: a leader that is cut off from the controller may still answer clients, while another one leads and
//   takes records. What it says of its end is older than it seems.
// Thread: blocking, any; without `ask` bounded by `timeout`.
// Errors: as TopicStatus; kUnavailable when brokers name different leaders for so long. That a right is
//   missing is believed when new clients have heard nothing else for kUnknownFor.
// Source: docs/design.md, fact 18. librdkafka 2.0 does not give a leader's epoch, so which broker is right
//   is not known.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "kafka/client.h"
#include "kafka/handles.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

// May be called several times: the last one counts.
using AskLeaders = std::function<rd_kafka_resp_err_t(rd_kafka_t* client, std::int32_t partitions)>;

// A consumer that knows the topic and reads as `isolation` says. The brokers that answer named the same
// leaders before and after `ask`, which asks with a consumer to whom nothing is aborted or open: a
// partition's end is its last record.
absl::StatusOr<Producer> AskAgreedLeaders(const KafkaOptions& options, const std::string& topic,
                                          std::chrono::milliseconds timeout, const AskLeaders& ask,
                                          Isolation isolation = Isolation::kReadUncommitted);

}  // namespace walpost::kafka
