// RelationCache - the Relation in force for each id on one connection.
// Why: columns are bound by name from the most recent Relation, which may change between two
//   inserts of one transaction; `version` tells a binding that it is stale. Lives as long as a
//   connection: cleared at START.
// Thread: one owner.
// Lifetime: a pointer from Find lives until the next Put of the same id or Clear.
// Errors: none; an Insert whose relation is unknown is judged by the caller (kDataLoss).
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "pgoutput/message.h"

namespace walpost::pgoutput {

class RelationCache {
 public:
  struct Entry {
    Relation relation;
    std::uint64_t version = 0;  // unique among all Puts of this cache's lifetime
  };

  const Entry& Put(Relation relation);
  const Entry* Find(RelationId id) const;
  void Clear();

 private:
  absl::flat_hash_map<std::uint32_t, Entry> entries_;
  std::uint64_t next_version_ = 1;
};

}  // namespace walpost::pgoutput
