// Properties - the user's librdkafka properties, ours, and the ones that must not be changed.
// Thread: free functions.
// Errors: kInvalidArgument names the property, what is wrong with it and why.
#pragma once

#include "absl/status/statusor.h"
#include "delivery/sink.h"
#include "kafka/handles.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

// A complete producer configuration for one generation.
absl::StatusOr<Conf> BuildConf(const KafkaOptions& options, delivery::Sink::Mode mode);

}  // namespace walpost::kafka
