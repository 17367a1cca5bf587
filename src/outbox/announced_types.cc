#include "outbox/announced_types.h"

#include <string>

namespace walpost::outbox {

void AnnouncedTypes::Add(const pgoutput::Type& type) {
  if (types_.size() < kMax) {
    types_.push_back({type.oid, std::string(type.schema), std::string(type.name)});
  }
}

void AnnouncedTypes::GiveTo(TableMapper* mapper) {
  if (mapper != nullptr) {
    mapper->Unbind();
    for (const Kept& type : types_) {
      mapper->Learn({type.oid, type.schema, type.name});
    }
  }
  types_.clear();
}

}  // namespace walpost::outbox
