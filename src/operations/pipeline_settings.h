// PipelineSettings - what verbs know of the pipeline that they are about: its servers, topics and outboxes.
// Thread: values, filled in by cli from the configuration.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "envelope/encoder.h"
#include "envelope/outbox_options.h"
#include "kafka/kafka_sink.h"
#include "postgres/connect.h"
#include "registry/options.h"

namespace walpost::operations {

struct PipelineSettings {
  std::string name;
  kafka::KafkaOptions kafka;
  postgres::ConnectOptions source;
  std::string dead_letter_conninfo;  // where walpost.dead_letters is; empty = the source's
  std::vector<envelope::OutboxOptions> outboxes;
  envelope::EncoderOptions messages;  // of logical messages that are events
  registry::RegistryOptions registry;
  std::chrono::milliseconds kafka_timeout{15'000};
  std::uint64_t dead_letters_max = 10'000;  // delivery.dead_letters_max
};

}  // namespace walpost::operations
