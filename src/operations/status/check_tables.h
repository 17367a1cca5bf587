// CheckTables - the part of `check` about the tables themselves: which files of sql/ are in force,
// and what stands in the way of keeping rows, dropping them and sending them again.
// Thread: blocking.
#pragma once

#include <string>
#include <vector>

#include "envelope/encoder.h"
#include "operations/outcome.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"
#include "registry/http.h"

namespace walpost::operations {

std::vector<CheckLine> CheckTables(const std::vector<outbox::TableOptions>& tables,
                                   const std::string& publication,
                                   postgres::SqlConnection* connection);

// CheckSchemas - the part of `walpost check` that asks a Schema Registry: whether it answers and,
// on request, what it says of every schema that is known without any event.
// Thread: blocking.
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
