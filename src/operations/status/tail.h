// Tail - events as they are committed, to look at: from PostgreSQL to the terminal, without Kafka.
// Why: to see what an application writes, before there is a Kafka, or beside a walpost that runs.
// Thread: blocking, until `stop_fd` is readable, the limit is reached, or nobody reads what is printed.
// Units/limits: reads by a slot of its own, which is gone with the connection; no other slot and no topic
//   is touched. Values are shown as they are in the row; a Schema Registry is not asked.
// Errors: as ExitCodeOf says; a row that is no event is shown as such and ends nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "operations/outcome.h"
#include "operations/pipeline_settings.h"

namespace walpost::operations {

struct TailOptions {
  PipelineSettings pipeline;   // source, outboxes and messages of it
  std::string messages_topic;  // template
  outbox::TopicOptions messages_topics;
  bool from_now = false;    // else with what the configured slot has not confirmed
  std::string table;        // SCHEMA.TABLE, or message:PREFIX; empty = all
  std::string key;          // empty = all
  std::uint64_t limit = 0;  // of events shown; 0 = none
  bool payload = false;
  bool json = false;
  int stop_fd = -1;
  // Cancelled: nobody reads it any more. DeadlineExceeded: nobody has read for too long.
  std::function<absl::Status(const std::string&)> print;
};

Outcome Tail(const TailOptions& options);

}  // namespace walpost::operations
