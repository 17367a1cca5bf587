// Properties - the user's librdkafka properties, ours, and the ones that must not be changed.
// Thread: free functions.
// Errors: kInvalidArgument names the property, what is wrong with it and why.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "delivery/sink.h"
#include "kafka/client.h"
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

// Encryption of the connections to Kafka, as the properties say it.
// Why: security.protocol is plaintext unless somebody sets it, and librdkafka says nothing of it.
// Thread: any.
// Source: librdkafka CONFIGURATION.md, security.protocol and bootstrap.servers
// ("PROTOCOL://host:port").

// A line for an operator that names those of `bootstrap.servers` and of `brokers` (host:port, as
// the cluster names them) that are spoken to in clear text over a network; empty = none.
std::string ClearTextWarning(const KafkaOptions& options,
                             const std::vector<std::string>& brokers = {});

// Why a connection may be in clear text; empty when none can. The cluster names its brokers itself,
// so an address of this machine is no exception.
std::string WhyMayBeClearText(const KafkaOptions& options);

}  // namespace walpost::kafka
