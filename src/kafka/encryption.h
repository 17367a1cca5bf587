// Encryption of the connections to Kafka, as the properties say it.
// Why: security.protocol is plaintext unless somebody sets it, and librdkafka says nothing of it.
// Thread: any.
// Source: librdkafka CONFIGURATION.md, security.protocol and bootstrap.servers ("PROTOCOL://host:port").
#pragma once

#include <string>
#include <vector>

#include "kafka/kafka_sink.h"

namespace walpost::kafka {

// A line for an operator that names those of `bootstrap.servers` and of `brokers` (host:port, as the cluster
// names them) that are spoken to in clear text over a network; empty = none.
std::string ClearTextWarning(const KafkaOptions& options,
                             const std::vector<std::string>& brokers = {});

// Why a connection may be in clear text; empty when none can. The cluster names its brokers itself, so an
// address of this machine is no exception.
std::string WhyMayBeClearText(const KafkaOptions& options);

}  // namespace walpost::kafka
