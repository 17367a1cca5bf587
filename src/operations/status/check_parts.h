// The parts of `check`, each of which answers with lines.
// Thread: blocking.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "envelope/encoder.h"
#include "kafka/kafka_sink.h"
#include "operations/outcome.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"
#include "registry/http.h"

namespace walpost::operations {

// CheckKafka - the part of `check` about the cluster: whether it answers, and whether the topics
// that are known beforehand keep what they are given.
// Source: https://kafka.apache.org/documentation/#topicconfigs.
struct CheckKafkaOptions {
  std::string name;  // of the pipeline
  kafka::KafkaOptions kafka;
  std::vector<std::string> topics;  // that are known without any event
  std::string progress_topic;       // empty = none
  std::string dead_letter_topic;    // empty = `delivery.on_undeliverable` needs none
  std::chrono::milliseconds timeout{5'000};
};

struct CheckKafkaResult {
  std::vector<CheckLine> lines;
  bool unreachable = false;
};

CheckKafkaResult CheckKafka(const CheckKafkaOptions& options);

// What `walpost version` prints: which libraries this process really runs with.
std::string VersionText(const std::string& version);

// MinorRelease - bugs of PostgreSQL that lose events, by the minor release that fixes them.
// Why: before May 2025 a walsender that has begun to read a transaction does not notice in it that
//   another one has edited the catalog. After ALTER PUBLICATION ... ADD TABLE beside an open
//   transaction that has written to the table it may leave out all later rows of it until the next
//   connect, and nothing in the stream says so.
// Thread: any.
// Source: release notes of 13.21, 14.18, 15.13, 16.9 and 17.5: "Avoid data loss when DDL operations
//   that don't take a strong lock affect tables that are being logically replicated".

// As PQserverVersion: 150013 is 15.13. The first release of the same major one with the fix; 0 =
// the first of all has it.
int FirstThatLearnsOfAddedTables(int server_version);

// CheckServer - the part of `check` about the server itself: its release, room for slots and
// walsenders, how much more WAL our slot may keep, settings that can take it away, and the clock.
// Source: https://www.postgresql.org/docs/current/runtime-config-replication.html.
// `now` is asked before and after the server is.
std::vector<CheckLine> CheckServer(
    const std::string& slot, postgres::SqlConnection* connection,
    const std::function<std::chrono::system_clock::time_point()>& now);

// CheckTables - the part of `check` about the tables themselves: which files of sql/ are in force,
// and what stands in the way of keeping rows, dropping them and sending them again.
std::vector<CheckLine> CheckTables(const std::vector<outbox::TableOptions>& tables,
                                   const std::string& publication,
                                   postgres::SqlConnection* connection);

// CheckSchemas - the part of `check` that asks a Schema Registry: whether it answers and,
// on request, what it says of every schema that is known without any event.
// Source: docs/schema-registry.md.

// Where events come from: an outbox, or messages.
struct SchemaSource {
  std::string name;
  envelope::EncoderOptions encoder;
  std::vector<std::string> topics;  // that are known beforehand
  bool more_topics = false;         // rows may name others
};

struct CheckSchemasOptions {
  registry::RegistryOptions registry;
  std::vector<SchemaSource> sources;  // in the order of SchemaNeed::source
  bool schemas = false;               // also every schema, not only the registry itself
};

struct CheckSchemasResult {
  std::vector<CheckLine> lines;
  bool unreachable = false;
};

CheckSchemasResult CheckSchemas(const CheckSchemasOptions& options);

SchemaSource SchemaSourceOf(const outbox::TableOptions& table,
                            const envelope::EncoderOptions& encoder);

}  // namespace walpost::operations
