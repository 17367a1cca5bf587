// Classify - the one table from librdkafka's error codes to what they mean for a record.
// Why: a broker's answer judges a record, a topic, or nothing but the producer that asked; mixing
//   them up loses events or halts for nothing. Everything not in the table is kOther.
// Source: rdkafka.h; the same table for operators, with what follows, is docs/failures-kafka.md.
#pragma once

#include <librdkafka/rdkafka.h>

#include "delivery/sink.h"

namespace walpost::kafka {

delivery::FailureKind Classify(rd_kafka_resp_err_t error);

// By a right, limit or policy of the topic: these change, and a leader that is cut off from the controller never
// learns of it.
bool IsByRulesOfTheTopic(delivery::FailureKind kind);

}  // namespace walpost::kafka
