// The bytes a walsender sends: frames of the replication COPY stream and messages of pgoutput.
// Why: tests say what is on the wire by name, field for field in the manual's order, and share no
//   code with the decoder under test.
// Thread: free functions and values.
// Source: PostgreSQL manual, "Streaming Replication Protocol" and "Logical Replication Message
//   Formats".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/lsn.h"
#include "base/time.h"
#include "pgoutput/message.h"

namespace walpost::testing {

// Big-endian integers, NUL-terminated strings and raw bytes, one after another; for what the
// functions below cannot say, such as a lie about a length.
class WireWriter {
 public:
  WireWriter& U8(std::uint8_t value) { return Integer(value, 1); }

  WireWriter& U16(std::uint16_t value) { return Integer(value, 2); }

  WireWriter& U32(std::uint32_t value) { return Integer(value, 4); }

  WireWriter& U64(std::uint64_t value) { return Integer(value, 8); }

  WireWriter& Tag(char tag) { return U8(static_cast<std::uint8_t>(tag)); }

  WireWriter& Position(base::Lsn lsn) { return U64(lsn.value()); }

  WireWriter& Time(base::WallTime time) {
    return U64(static_cast<std::uint64_t>(base::ToPostgresMicros(time)));
  }

  WireWriter& CString(std::string_view text);
  WireWriter& Raw(std::string_view bytes);

  const std::string& bytes() const { return bytes_; }

 private:
  WireWriter& Integer(std::uint64_t value, int size);

  std::string bytes_;
};

// 'w' and 'k'. The header's positions mean nothing to a client of pgoutput, see pgoutput/decoder.h.
std::string XLogDataFrame(std::string_view payload, base::Lsn start = {}, base::Lsn end = {},
                          base::WallTime sent = {});
std::string KeepaliveFrame(base::Lsn wal_end, bool reply_requested = false,
                           base::WallTime server_time = {});

// One column of a tuple.
struct TupleColumn {
  char kind = 'n';
  std::string bytes;
};

using Tuple = std::vector<TupleColumn>;

TupleColumn NullColumn();
TupleColumn UnchangedToastColumn();
TupleColumn TextColumn(std::string_view text);
TupleColumn BinaryColumn(std::string_view bytes);

// What a type's binary form is made of: BinaryColumn(BigEndian(42, 4)) is an int4.
std::string BigEndian(std::int64_t value, int size);

std::string BeginBytes(base::Lsn commit_lsn, base::Xid xid = {}, base::WallTime commit_time = {});
std::string CommitBytes(base::Lsn commit_lsn, base::Lsn end_lsn, base::WallTime commit_time = {});
std::string OriginBytes(base::Lsn commit_lsn, std::string_view name);
std::string RelationBytes(const pgoutput::Relation& relation);
std::string TypeBytes(std::uint32_t oid, std::string_view schema, std::string_view name);
std::string InsertBytes(pgoutput::RelationId relation, const Tuple& row);
// `old_kind` is 'K' (the key changed), 'O' (replica identity full) or 0 (no old tuple is sent).
std::string UpdateBytes(pgoutput::RelationId relation, const Tuple& row, char old_kind = 0,
                        const Tuple& old_row = {});
std::string DeleteBytes(pgoutput::RelationId relation, char old_kind, const Tuple& old_row);
std::string TruncateBytes(const std::vector<pgoutput::RelationId>& relations, bool cascade = false,
                          bool restart_identity = false);
std::string LogicalMessageBytes(bool transactional, base::Lsn lsn, std::string_view prefix,
                                std::string_view content);
std::string StreamAbortBytes(base::Xid xid, base::Xid subxid);

}  // namespace walpost::testing
