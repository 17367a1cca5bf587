#include "support/pgoutput_bytes.h"

namespace walpost::testing {
namespace {

void AppendTuple(const Tuple& tuple, WireWriter* writer) {
  writer->U16(static_cast<std::uint16_t>(tuple.size()));
  for (const TupleColumn& column : tuple) {
    writer->Tag(column.kind);
    if (column.kind == 't' || column.kind == 'b') {
      writer->U32(static_cast<std::uint32_t>(column.bytes.size())).Raw(column.bytes);
    }
  }
}

}  // namespace

WireWriter& WireWriter::CString(std::string_view text) {
  bytes_ += text;
  bytes_.push_back('\0');
  return *this;
}

WireWriter& WireWriter::Raw(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}

WireWriter& WireWriter::Integer(std::uint64_t value, int size) {
  for (int shift = 8 * (size - 1); shift >= 0; shift -= 8) {
    bytes_.push_back(static_cast<char>((value >> shift) & 0xFF));
  }
  return *this;
}

std::string XLogDataFrame(std::string_view payload, base::Lsn start, base::Lsn end,
                          base::WallTime sent) {
  return WireWriter().Tag('w').Position(start).Position(end).Time(sent).Raw(payload).bytes();
}

std::string KeepaliveFrame(base::Lsn wal_end, bool reply_requested, base::WallTime server_time) {
  return WireWriter()
      .Tag('k')
      .Position(wal_end)
      .Time(server_time)
      .U8(reply_requested ? 1 : 0)
      .bytes();
}

TupleColumn NullColumn() { return {'n', ""}; }

TupleColumn UnchangedToastColumn() { return {'u', ""}; }

TupleColumn TextColumn(std::string_view text) { return {'t', std::string(text)}; }

TupleColumn BinaryColumn(std::string_view bytes) { return {'b', std::string(bytes)}; }

std::string BigEndian(std::int64_t value, int size) {
  return WireWriter()
      .U64(static_cast<std::uint64_t>(value))
      .bytes()
      .substr(static_cast<std::size_t>(8 - size));
}

std::string BeginBytes(base::Lsn commit_lsn, base::Xid xid, base::WallTime commit_time) {
  return WireWriter().Tag('B').Position(commit_lsn).Time(commit_time).U32(xid.value).bytes();
}

std::string CommitBytes(base::Lsn commit_lsn, base::Lsn end_lsn, base::WallTime commit_time) {
  return WireWriter()
      .Tag('C')
      .U8(0)
      .Position(commit_lsn)
      .Position(end_lsn)
      .Time(commit_time)
      .bytes();
}

std::string OriginBytes(base::Lsn commit_lsn, std::string_view name) {
  return WireWriter().Tag('O').Position(commit_lsn).CString(name).bytes();
}

std::string RelationBytes(const pgoutput::Relation& relation) {
  WireWriter writer;
  writer.Tag('R').U32(relation.id.oid).CString(relation.schema).CString(relation.name);
  writer.Tag(relation.replica_identity).U16(static_cast<std::uint16_t>(relation.columns.size()));
  for (const pgoutput::Column& column : relation.columns) {
    writer.U8(column.part_of_key ? 1 : 0).CString(column.name).U32(column.type_oid);
    writer.U32(static_cast<std::uint32_t>(column.type_modifier));
  }
  return writer.bytes();
}

std::string TypeBytes(std::uint32_t oid, std::string_view schema, std::string_view name) {
  return WireWriter().Tag('Y').U32(oid).CString(schema).CString(name).bytes();
}

std::string InsertBytes(pgoutput::RelationId relation, const Tuple& row) {
  WireWriter writer;
  AppendTuple(row, &writer.Tag('I').U32(relation.oid).Tag('N'));
  return writer.bytes();
}

std::string UpdateBytes(pgoutput::RelationId relation, const Tuple& row, char old_kind,
                        const Tuple& old_row) {
  WireWriter writer;
  writer.Tag('U').U32(relation.oid);
  if (old_kind != 0) {
    AppendTuple(old_row, &writer.Tag(old_kind));
  }
  AppendTuple(row, &writer.Tag('N'));
  return writer.bytes();
}

std::string DeleteBytes(pgoutput::RelationId relation, char old_kind, const Tuple& old_row) {
  WireWriter writer;
  AppendTuple(old_row, &writer.Tag('D').U32(relation.oid).Tag(old_kind));
  return writer.bytes();
}

std::string TruncateBytes(const std::vector<pgoutput::RelationId>& relations, bool cascade,
                          bool restart_identity) {
  WireWriter writer;
  writer.Tag('T').U32(static_cast<std::uint32_t>(relations.size()));
  writer.U8(static_cast<std::uint8_t>((cascade ? 1 : 0) | (restart_identity ? 2 : 0)));
  for (const pgoutput::RelationId relation : relations) {
    writer.U32(relation.oid);
  }
  return writer.bytes();
}

std::string LogicalMessageBytes(bool transactional, base::Lsn lsn, std::string_view prefix,
                                std::string_view content) {
  return WireWriter()
      .Tag('M')
      .U8(transactional ? 1 : 0)
      .Position(lsn)
      .CString(prefix)
      .U32(static_cast<std::uint32_t>(content.size()))
      .Raw(content)
      .bytes();
}

std::string StreamAbortBytes(base::Xid xid, base::Xid subxid) {
  return WireWriter().Tag('A').U32(xid.value).U32(subxid.value).bytes();
}

}  // namespace walpost::testing
