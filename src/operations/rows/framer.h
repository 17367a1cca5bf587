// Framer - gives a record that a verb sends the bytes of its schema, as the stream would.
// Why: no dead letter and no row holds them, and the registry may know another schema by now.
// Thread: one owner; blocking.
// Errors: kFailedPrecondition (no registry is configured), and the resolver's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/schema.h"
#include "envelope/schema_table.h"
#include "registry/resolver.h"

namespace walpost::operations {

class Framer {
 public:
  // `framings` by the numbers in SchemaNeed::source.
  Framer(registry::RegistryOptions options, std::vector<envelope::FramingOptions> framings)
      : options_(std::move(options)), framings_(std::move(framings)) {}

  absl::StatusOr<std::string> FrameFor(const envelope::SchemaNeed& need);

  // A record with room, as an encoder makes them; one that needs nothing stays as it is.
  absl::StatusOr<envelope::Record> Frame(const envelope::Record& record,
                                         const envelope::SchemaTable& schemas);

 private:
  const registry::RegistryOptions options_;
  const std::vector<envelope::FramingOptions> framings_;
  std::shared_ptr<registry::Resolver> resolver_;              // null until needed
  std::map<envelope::SchemaTable::Ref, std::string> frames_;  // of one table of schemas
  std::uint64_t epoch_ = 0;                                   // of the table
};

}  // namespace walpost::operations
