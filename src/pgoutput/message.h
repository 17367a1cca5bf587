// Message - the typed messages of pgoutput, protocol version 1.
// Why: names and order are the manual's, one struct per message, so a reader can hold both side by
//   side.
// Thread: values.
// Lifetime: every view points into the payload given to Decoder::Decode, and Insert::values into
//   the decoder; both end with the next Decode call. Relation owns its strings because it is kept.
// Source: PostgreSQL manual, "Logical Replication Message Formats".
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::pgoutput {

struct RelationId {
  std::uint32_t oid = 0;

  friend constexpr auto operator<=>(RelationId, RelationId) = default;
};

struct Begin {
  base::Lsn commit_lsn;  // the manual's "final LSN"
  base::WallTime commit_time;
  base::Xid xid;
};

struct Commit {
  base::Lsn commit_lsn;
  base::Lsn end_lsn;  // the one to confirm
  base::WallTime commit_time;
};

struct Origin {
  base::Lsn commit_lsn;
  std::string_view name;
};

struct Column {
  std::string name;
  std::uint32_t type_oid = 0;
  std::int32_t type_modifier = -1;
  bool part_of_key = false;
};

struct Relation {
  RelationId id;
  std::string schema;  // "pg_catalog" is sent empty
  std::string name;
  char replica_identity = 'd';
  std::vector<Column> columns;
};

struct Type {
  std::uint32_t oid = 0;
  std::string_view schema;
  std::string_view name;
};

struct Value {
  enum class Kind : std::uint8_t { kNull, kUnchangedToast, kText, kBinary };

  Kind kind = Kind::kNull;
  std::string_view bytes;

  bool is_binary() const { return kind == Kind::kBinary; }
};

struct Insert {
  RelationId relation;
  std::span<const Value> values;
};

// Only counted: an outbox publication publishes inserts. Their tuples are still checked for
// well-formedness.
struct Update {
  RelationId relation;
};

struct Delete {
  RelationId relation;
};

struct Truncate {
  std::span<const RelationId> relations;
  bool cascade = false;
  bool restart_identity = false;
};

// Emitted by pg_logical_emit_message (14+).
struct LogicalMessage {
  bool transactional = false;
  base::Lsn lsn;
  std::string_view prefix;
  std::string_view content;
};

// A transaction was rolled back. It is of streaming, which walpost does not ask for; 18 sends it
// all the same, between two transactions, for a large one with a savepoint that was rolled back
// before it was decoded.
struct StreamAbort {
  base::Xid xid;
  base::Xid subxid;
};

using Message = std::variant<Begin, Commit, Origin, Relation, Type, Insert, Update, Delete,
                             Truncate, LogicalMessage, StreamAbort>;

}  // namespace walpost::pgoutput
