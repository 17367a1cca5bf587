// Check - looks at everything `run` needs, changes nothing, and says how to fix what is wrong.
// Thread: blocking.
// Errors: exit code 78 when a line failed, 69 when PostgreSQL or Kafka could not be reached.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "kafka/kafka_sink.h"
#include "observe/http_server.h"
#include "operations/outcome.h"
#include "operations/status/check_parts.h"
#include "outbox/options.h"
#include "postgres/connect.h"

namespace walpost::operations {

struct CheckOptions {
  std::string name;
  postgres::ConnectOptions source;
  std::vector<outbox::TableOptions> tables;
  std::string messages_topic;  // template; used where source.message_prefixes is not empty
  std::vector<std::string> topics_allowed;  // of all tables
  kafka::KafkaOptions kafka;
  std::string progress_topic;        // empty = none
  std::string dead_letter_topic;     // empty = `delivery.on_undeliverable` needs none
  std::string dead_letter_conninfo;  // where walpost.dead_letters is; empty = the source's
  CheckSchemasOptions schemas;       // without URLs there is no registry to look at
  observe::HttpOptions http;
  bool json = false;
  bool color = false;
  std::chrono::milliseconds kafka_timeout{5'000};
};

Outcome Check(const CheckOptions& options);

}  // namespace walpost::operations
