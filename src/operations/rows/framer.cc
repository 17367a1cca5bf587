#include "operations/rows/framer.h"

#include "base/status.h"

namespace walpost::operations {

absl::StatusOr<std::string> Framer::FrameFor(const envelope::SchemaNeed& need) {
  if (options_.urls.empty()) {
    return absl::FailedPreconditionError(
        "it was meant to go out with a schema of a Schema Registry: give schema_registry.url");
  }
  if (resolver_ == nullptr) {
    ASSIGN_OR_RETURN(resolver_, registry::Resolver::Create(options_, framings_));
  }
  ASSIGN_OR_RETURN(const envelope::Schema schema, resolver_->Resolve(need));
  return FrameOf(need, schema);
}

absl::StatusOr<envelope::Record> Framer::Frame(const envelope::Record& record,
                                               const envelope::SchemaTable& schemas) {
  if (record.schema == 0) {
    return record;
  }
  if (schemas.epoch() != epoch_) {
    frames_.clear();
    epoch_ = schemas.epoch();
  }
  const envelope::SchemaNeed& need = schemas.entry(record.schema).need;
  auto found = frames_.find(record.schema);
  if (found == frames_.end()) {
    ASSIGN_OR_RETURN(std::string frame, FrameFor(need));
    found = frames_.emplace(record.schema, std::move(frame)).first;
  }
  return Framed(record, need.framing, found->second);
}

}  // namespace walpost::operations
