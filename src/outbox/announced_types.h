// AnnouncedTypes - the types that the server sends right before a table, until it is known whose they are.
// Why: it sends them for every table, each time that it announces it. A stream may hold any number of
//   other tables, whose types are not ours to keep.
// Thread: one owner.
// Limits: no more types than a table has columns (kMax); what a mapper has are those of its own table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "outbox/table_mapper.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

class AnnouncedTypes {
 public:
  // PostgreSQL's own limit of columns.
  static constexpr std::size_t kMax = 1'600;

  // To be called with every Type message. What comes after kMax of them is of no table.
  void Add(const pgoutput::Type& type);

  // To be called with every Relation message, before it is bound. `mapper` is its outbox's, and is
  // unbound: the types of before come again with each announcement. Null = the table is no outbox.
  void GiveTo(TableMapper* mapper);

  // For a new connection.
  void Clear() { types_.clear(); }

 private:
  struct Kept {
    std::uint32_t oid = 0;
    std::string schema;
    std::string name;
  };

  std::vector<Kept> types_;
};

}  // namespace walpost::outbox
