#include "outbox/kept_row.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/dead_letter.h"
#include "base/status.h"
#include "outbox/column_value.h"
#include "outbox/connect_value.h"

namespace walpost::outbox {
namespace {

using pgoutput::Column;
using pgoutput::Relation;

// Nobody takes it for a record's value, and another form would get another one.
constexpr std::string_view kMark = "walpost-row-1\n";

void Append(std::uint32_t number, int bytes, std::string* out) {
  for (int i = bytes - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(number >> (8 * static_cast<unsigned>(i))));
  }
}

void Append(std::string_view text, std::string* out) {
  out->append(text);
  out->push_back('\0');
}

// A domain is what is below it, where that makes no difference, and what only the server's catalog
// shows to be text is text. Of any other type made by users nothing is read, then as now.
std::uint32_t KeptType(const TableMapper& mapper, std::uint32_t oid) {
  const std::uint32_t readable = mapper.ReadableType(oid);
  const bool domain = readable != oid;
  if (readable == 0 || (domain && !ConnectColumn::Of(readable, -1, /*is_domain=*/true))) {
    return oid;
  }
  return readable >= type_oid::kFirstUserType ? type_oid::kText : readable;
}

std::string RelationMessage(const TableMapper& mapper, const Relation& relation) {
  std::string message = "R";
  Append(relation.id.oid, 4, &message);
  Append(relation.schema, &message);
  Append(relation.name, &message);
  message.push_back(relation.replica_identity);
  Append(static_cast<std::uint32_t>(relation.columns.size()), 2, &message);
  for (const Column& column : relation.columns) {
    Append(column.part_of_key ? 1 : 0, 1, &message);
    Append(column.name, &message);
    Append(KeptType(mapper, column.type_oid), 4, &message);
    Append(static_cast<std::uint32_t>(column.type_modifier), 4, &message);
  }
  return message;
}

absl::Status NoKeptRow(std::string_view why) {
  return absl::DataLossError(
      absl::StrFormat("what its dead letter keeps is no row that walpost has written (%s)", why));
}

template <typename Wanted>
absl::StatusOr<Wanted> Read(pgoutput::Decoder* decoder, std::string_view bytes) {
  pgoutput::Message message;
  if (const absl::Status status = decoder->Decode(bytes, &message); !status.ok()) {
    return NoKeptRow(std::string(status.message()));
  }
  Wanted* const wanted = std::get_if<Wanted>(&message);
  return wanted != nullptr ? absl::StatusOr<Wanted>(std::move(*wanted))
                           : NoKeptRow("another message");
}

}  // namespace

std::optional<std::string> KeepRow(const StreamedRow& row) {
  if (row.insert.size() > base::DeadLetter::kRecordBytesMax) {
    return std::nullopt;
  }
  const std::string relation = RelationMessage(*row.mapper, *row.relation);
  std::string kept(kMark);
  Append(static_cast<std::uint32_t>(relation.size()), 4, &kept);
  kept += relation;
  kept += row.insert;
  return kept.size() > base::DeadLetter::kRecordBytesMax ? std::nullopt
                                                         : std::optional(std::move(kept));
}

absl::StatusOr<KeptRow> KeptRow::Parse(std::string_view bytes) {
  base::ByteReader reader(bytes);
  if (reader.Bytes(kMark.size()) != kMark) {
    return NoKeptRow("no mark");
  }
  const std::string_view relation = reader.Bytes(reader.U32());
  if (!reader.ok()) {
    return NoKeptRow("too short");
  }
  pgoutput::Decoder decoder;
  KeptRow row;
  ASSIGN_OR_RETURN(row.relation_, Read<Relation>(&decoder, relation));
  ASSIGN_OR_RETURN(const auto insert, Read<pgoutput::Insert>(&decoder, reader.Rest()));
  if (insert.relation != row.relation_.id || insert.values.size() != row.relation_.columns.size()) {
    return NoKeptRow("of another table");
  }
  row.values_.assign(insert.values.begin(), insert.values.end());
  return row;
}

}  // namespace walpost::outbox
