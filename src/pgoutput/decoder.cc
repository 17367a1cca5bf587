#include "pgoutput/decoder.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace walpost::pgoutput {
namespace {

// Tag, start LSN, end LSN, send time.
constexpr std::size_t kXLogDataHeaderBytes = 25;
constexpr std::size_t kKeepaliveBytes = 18;

void AppendU64(std::uint64_t value, std::string* bytes) {
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes->push_back(static_cast<char>((value >> shift) & 0xFF));
  }
}

absl::Status BadFrame(std::string_view name, std::size_t size) {
  return absl::DataLossError(
      absl::StrFormat("replication stream: %s frame of %u bytes", name, size));
}

}  // namespace

absl::StatusOr<Frame> DecodeFrame(std::string_view bytes) {
  if (bytes.empty()) {
    return BadFrame("empty", 0);
  }
  if (bytes[0] == 'w') {
    if (bytes.size() < kXLogDataHeaderBytes) {
      return BadFrame("short XLogData", bytes.size());
    }
    base::ByteReader reader(bytes.substr(1));
    XLogData data;
    data.start = base::Lsn(reader.U64());
    reader.U64();  // the end of the log, as far as the walsender says: the same as `start`
    data.server_time = base::FromPostgresMicros(reader.I64());
    data.payload = bytes.substr(kXLogDataHeaderBytes);
    return Frame(data);
  }
  if (bytes[0] == 'k') {
    if (bytes.size() != kKeepaliveBytes) {
      return BadFrame("misshaped keepalive", bytes.size());
    }
    base::ByteReader reader(bytes.substr(1));
    Keepalive keepalive;
    keepalive.wal_end = base::Lsn(reader.U64());
    keepalive.server_time = base::FromPostgresMicros(reader.I64());
    keepalive.reply_requested = reader.U8() != 0;
    return Frame(keepalive);
  }
  return absl::DataLossError(absl::StrFormat("replication stream: unknown frame 0x%02x of %u bytes",
                                             static_cast<unsigned char>(bytes[0]), bytes.size()));
}

std::string EncodeStandbyStatus(const StandbyStatus& status) {
  std::string bytes;
  bytes.reserve(34);
  bytes.push_back('r');
  AppendU64(status.write.value(), &bytes);
  AppendU64(status.flush.value(), &bytes);
  AppendU64(status.apply.value(), &bytes);
  AppendU64(static_cast<std::uint64_t>(base::ToPostgresMicros(status.client_time)), &bytes);
  bytes.push_back(status.reply_requested ? 1 : 0);
  return bytes;
}

namespace {

using base::ByteReader;
using base::Lsn;

absl::Status Malformed(std::string_view message, std::string_view what) {
  return absl::DataLossError(absl::StrFormat("pgoutput: %s message: %s", message, what));
}

// Every message must be consumed to its last byte.
absl::Status Finish(const ByteReader& reader, std::string_view message) {
  if (!reader.ok()) {
    return Malformed(message, "ends too early");
  }
  if (reader.remaining() != 0) {
    return Malformed(message, absl::StrFormat("%u bytes too long", reader.remaining()));
  }
  return absl::OkStatus();
}

// TupleData: u16 count, then per column 'n' | 'u' | ('t' or 'b') u32 length, bytes.
absl::Status ReadTuple(ByteReader* reader, std::string_view message, bool toast_allowed,
                       std::vector<Value>* values) {
  const std::size_t count = reader->U16();
  if (count > Decoder::kColumnsMax) {
    return Malformed(message, absl::StrFormat("claims %u columns", count));
  }
  if (count > reader->remaining()) {
    return Malformed(message, "ends too early");
  }
  values->resize(count);
  for (Value& value : *values) {
    const std::uint8_t kind = reader->U8();
    value.bytes = std::string_view();
    if (kind == 't' || kind == 'b') {
      value.kind = kind == 't' ? Value::Kind::kText : Value::Kind::kBinary;
      value.bytes = reader->Bytes(reader->U32());
    } else if (kind == 'n') {
      value.kind = Value::Kind::kNull;
    } else if (kind == 'u' && toast_allowed) {
      value.kind = Value::Kind::kUnchangedToast;
    } else if (!reader->ok()) {
      break;
    } else {
      return Malformed(message, absl::StrFormat("column value of unknown kind 0x%02x", kind));
    }
  }
  return reader->ok() ? absl::OkStatus() : Malformed(message, "ends too early");
}

absl::Status ExpectTag(ByteReader* reader, char tag, std::string_view message) {
  const std::uint8_t found = reader->U8();
  if (!reader->ok()) {
    return Malformed(message, "ends too early");
  }
  return found == static_cast<std::uint8_t>(tag)
             ? absl::OkStatus()
             : Malformed(message, absl::StrFormat("expected '%c', found 0x%02x", tag, found));
}

// B: i64 commit LSN, i64 commit time, u32 xid.
absl::Status ReadBegin(ByteReader* reader, Message* message) {
  Begin begin;
  begin.commit_lsn = Lsn(reader->U64());
  begin.commit_time = base::FromPostgresMicros(reader->I64());
  begin.xid = base::Xid{reader->U32()};
  *message = begin;
  return Finish(*reader, "Begin");
}

// C: u8 flags (0), i64 commit LSN, i64 end LSN, i64 commit time.
absl::Status ReadCommit(ByteReader* reader, Message* message) {
  const std::uint8_t flags = reader->U8();
  Commit commit;
  commit.commit_lsn = Lsn(reader->U64());
  commit.end_lsn = Lsn(reader->U64());
  commit.commit_time = base::FromPostgresMicros(reader->I64());
  *message = commit;
  if (reader->ok() && flags != 0) {
    return Malformed("Commit", absl::StrFormat("unknown flags 0x%02x", flags));
  }
  return Finish(*reader, "Commit");
}

// O: i64 commit LSN at the origin, string name.
absl::Status ReadOrigin(ByteReader* reader, Message* message) {
  Origin origin;
  origin.commit_lsn = Lsn(reader->U64());
  origin.name = reader->CString();
  *message = origin;
  return Finish(*reader, "Origin");
}

// A: u32 xid, u32 xid of the subtransaction.
absl::Status ReadStreamAbort(ByteReader* reader, Message* message) {
  StreamAbort abort;
  abort.xid = base::Xid{reader->U32()};
  abort.subxid = base::Xid{reader->U32()};
  *message = abort;
  return Finish(*reader, "Stream Abort");
}

// R: u32 OID, string schema, string name, u8 replica identity, u16 count, per column u8 flags,
// string name, u32 type, i32 type modifier.
absl::Status ReadRelation(ByteReader* reader, Message* message) {
  Relation relation;
  relation.id = RelationId{reader->U32()};
  relation.schema = std::string(reader->CString());
  relation.name = std::string(reader->CString());
  relation.replica_identity = static_cast<char>(reader->U8());
  const std::size_t count = reader->U16();
  if (reader->ok() &&
      std::string_view("dnfi").find(relation.replica_identity) == std::string_view::npos) {
    return Malformed("Relation",
                     absl::StrFormat("unknown replica identity 0x%02x",
                                     static_cast<unsigned char>(relation.replica_identity)));
  }
  if (count > Decoder::kColumnsMax) {
    return Malformed("Relation", absl::StrFormat("claims %u columns", count));
  }
  if (count > reader->remaining()) {
    return Malformed("Relation", "ends too early");
  }
  relation.columns.resize(count);
  for (Column& column : relation.columns) {
    const std::uint8_t flags = reader->U8();
    column.part_of_key = flags == 1;
    column.name = std::string(reader->CString());
    column.type_oid = reader->U32();
    column.type_modifier = reader->I32();
    if (reader->ok() && flags > 1) {
      return Malformed("Relation", absl::StrFormat("unknown column flags 0x%02x", flags));
    }
  }
  *message = std::move(relation);
  return Finish(*reader, "Relation");
}

// Y: u32 OID, string schema, string name.
absl::Status ReadType(ByteReader* reader, Message* message) {
  Type type;
  type.oid = reader->U32();
  type.schema = reader->CString();
  type.name = reader->CString();
  *message = type;
  return Finish(*reader, "Type");
}

// I: u32 relation, 'N', TupleData.
absl::Status ReadInsert(ByteReader* reader, std::vector<Value>* values, Message* message) {
  Insert insert;
  insert.relation = RelationId{reader->U32()};
  if (absl::Status status = ExpectTag(reader, 'N', "Insert"); !status.ok()) {
    return status;
  }
  if (absl::Status status = ReadTuple(reader, "Insert", /*toast_allowed=*/false, values);
      !status.ok()) {
    return status;
  }
  insert.values = *values;
  *message = insert;
  return Finish(*reader, "Insert");
}

// U: u32 relation, optional 'K' or 'O' TupleData, 'N' TupleData.
absl::Status ReadUpdate(ByteReader* reader, std::vector<Value>* values, Message* message) {
  *message = Update{RelationId{reader->U32()}};
  std::uint8_t tag = reader->U8();
  if (tag == 'K' || tag == 'O') {
    if (absl::Status status = ReadTuple(reader, "Update", /*toast_allowed=*/true, values);
        !status.ok()) {
      return status;
    }
    tag = reader->U8();
  }
  if (reader->ok() && tag != 'N') {
    return Malformed("Update", absl::StrFormat("expected 'N', found 0x%02x", tag));
  }
  if (absl::Status status = ReadTuple(reader, "Update", /*toast_allowed=*/true, values);
      !status.ok()) {
    return status;
  }
  return Finish(*reader, "Update");
}

// D: u32 relation, 'K' or 'O', TupleData.
absl::Status ReadDelete(ByteReader* reader, std::vector<Value>* values, Message* message) {
  *message = Delete{RelationId{reader->U32()}};
  const std::uint8_t tag = reader->U8();
  if (reader->ok() && tag != 'K' && tag != 'O') {
    return Malformed("Delete", absl::StrFormat("expected 'K' or 'O', found 0x%02x", tag));
  }
  if (absl::Status status = ReadTuple(reader, "Delete", /*toast_allowed=*/true, values);
      !status.ok()) {
    return status;
  }
  return Finish(*reader, "Delete");
}

// T: u32 count, u8 bits (1 cascade, 2 restart identity), u32 relation each.
absl::Status ReadTruncate(ByteReader* reader, std::vector<RelationId>* relations,
                          Message* message) {
  const std::size_t count = reader->U32();
  const std::uint8_t bits = reader->U8();
  if (!reader->ok() || count > reader->remaining() / 4) {
    return Malformed("Truncate", "ends too early");
  }
  if (bits > 3) {
    return Malformed("Truncate", absl::StrFormat("unknown bits 0x%02x", bits));
  }
  relations->resize(count);
  for (RelationId& relation : *relations) {
    relation = RelationId{reader->U32()};
  }
  *message = Truncate{*relations, (bits & 1) != 0, (bits & 2) != 0};
  return Finish(*reader, "Truncate");
}

// M: u8 flags (1 = transactional), i64 LSN, string prefix, u32 length, bytes.
absl::Status ReadLogicalMessage(ByteReader* reader, Message* message) {
  const std::uint8_t flags = reader->U8();
  LogicalMessage logical;
  logical.transactional = flags == 1;
  logical.lsn = Lsn(reader->U64());
  logical.prefix = reader->CString();
  logical.content = reader->Bytes(reader->U32());
  *message = logical;
  if (reader->ok() && flags > 1) {
    return Malformed("Message", absl::StrFormat("unknown flags 0x%02x", flags));
  }
  return Finish(*reader, "Message");
}

}  // namespace

absl::Status Decoder::Decode(std::string_view payload, Message* message) {
  if (payload.empty()) {
    return absl::DataLossError("pgoutput: empty message");
  }
  ByteReader reader(payload.substr(1));
  const char tag = payload[0];
  switch (tag) {
    case 'B':
      return ReadBegin(&reader, message);
    case 'C':
      return ReadCommit(&reader, message);
    case 'O':
      return ReadOrigin(&reader, message);
    case 'R':
      return ReadRelation(&reader, message);
    case 'Y':
      return ReadType(&reader, message);
    case 'I':
      return ReadInsert(&reader, &values_, message);
    case 'U':
      return ReadUpdate(&reader, &values_, message);
    case 'D':
      return ReadDelete(&reader, &values_, message);
    case 'T':
      return ReadTruncate(&reader, &relation_ids_, message);
    case 'M':
      return ReadLogicalMessage(&reader, message);
    case 'A':
      return ReadStreamAbort(&reader, message);
    default:
      break;
  }
  if (std::string_view("SEcbPKrp").find(tag) != std::string_view::npos) {
    return absl::DataLossError(absl::StrFormat(
        "pgoutput: message '%c' belongs to streaming or two-phase mode, which was not asked for",
        tag));
  }
  return absl::DataLossError(absl::StrFormat("pgoutput: unknown message 0x%02x of %u bytes",
                                             static_cast<unsigned char>(tag), payload.size()));
}

}  // namespace walpost::pgoutput
