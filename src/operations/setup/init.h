// Init - schema, publication, slot and the topic of progress, in this order, and the record that
// they were made.
// Why: a publication must exist at every position its slot will read, so it comes first; and
//   nothing here ever makes a slot over an existing history.
// Thread: blocking. Use: any number of times; what is there already is checked, not changed.
// Errors: in Outcome. slot_missing (78) when the record exists and the slot does not.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kafka/kafka_sink.h"
#include "operations/outcome.h"
#include "operations/reconcile/backfill.h"
#include "postgres/connect.h"

namespace walpost::operations {

struct InitOptions {
  std::string name;
  postgres::ConnectOptions source;
  bool print_sql = false;  // only show what would be executed
  // Also make outbox.emit_message, and record source.message_prefixes.
  bool with_messages = false;
  bool take_slot = false;    // one that may be older than what publishes the outboxes
  bool revoke_emit = false;  // also take the right to emit messages from PUBLIC
  bool with_roles = false;   // also the roles owner, writer and relay
  bool plain_table = false;  // outbox.events in one piece, not in partitions
  // Where events, emit and what belongs to them are made, when SCHEMA.events is an outbox.
  std::string table_schema = "outbox";
  // Also send the rows that are there before the slot; absent = they are left out.
  std::optional<BackfillOptions> backfill;
  // A new slot in place of the recorded one: an operator has decided so. `drop_slot` is called when
  // nothing else is in its way any more; true = there was one. `replaced`: once it is there, before
  // anything is sent.
  std::function<absl::StatusOr<bool>()> drop_slot;
  std::function<absl::Status()> replaced;
  std::chrono::milliseconds slot_timeout{30'000};
  kafka::KafkaOptions kafka;
  std::string progress_topic;        // empty = none, and Kafka is not asked
  std::string dead_letter_topic;     // empty = none
  std::string dead_letter_conninfo;  // where walpost.dead_letters is; empty = the source's
  std::chrono::milliseconds kafka_timeout{15'000};
};

Outcome Init(const InitOptions& options);

// What Init looks at before it changes anything.
absl::Status CheckInit(const InitOptions& options);

}  // namespace walpost::operations
