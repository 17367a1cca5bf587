#include "pgoutput/relation_cache.h"

#include <utility>

namespace walpost::pgoutput {

const RelationCache::Entry& RelationCache::Put(Relation relation) {
  Entry& entry = entries_[relation.id.oid];
  entry.relation = std::move(relation);
  entry.version = next_version_++;
  return entry;
}

const RelationCache::Entry* RelationCache::Find(RelationId id) const {
  const auto found = entries_.find(id.oid);
  return found == entries_.end() ? nullptr : &found->second;
}

void RelationCache::Clear() { entries_.clear(); }

}  // namespace walpost::pgoutput
