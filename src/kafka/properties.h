// Properties - the user's librdkafka properties, ours, and the ones that must not be changed.
// Thread: free functions.
// Errors: kInvalidArgument names the property, what is wrong with it and why.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "delivery/sink.h"
#include "kafka/handles.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

// A complete producer configuration for one producer. A user's message.max.bytes stays; batch.size
// is lowered to what the topics take, a user's too.
absl::StatusOr<Conf> BuildConf(const KafkaOptions& options, delivery::Sink::Mode mode,
                               const ProducerLimits& limits = {});

// "" for a property that librdkafka does not have.
std::string InForce(const rd_kafka_conf_t* conf, const std::string& name);

// What librdkafka says, without pieces of values that may be secrets.
std::string Shown(std::string_view text, const KafkaOptions& options);

// Then only the broker knows whether a record is too large: compressed it may be small enough.
bool Compresses(const rd_kafka_conf_t* conf);

}  // namespace walpost::kafka
