// Changes of intake_fuzz's inputs that keep most of the stream in shape: its order, its tables, the
// values of its rows.
#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "fuzz/fuzz_target.h"
#include "fuzz/intake_input.h"
#include "fuzz/mutate.h"
#include "outbox/column_value.h"
#include "pgoutput/decoder.h"
#include "support/pgoutput_bytes.h"

namespace walpost::fuzz {
namespace {

constexpr std::uint32_t kTypes[] = {
    outbox::type_oid::kBool,        outbox::type_oid::kBytea,
    outbox::type_oid::kInt8,        outbox::type_oid::kInt2,
    outbox::type_oid::kInt4,        outbox::type_oid::kText,
    outbox::type_oid::kJson,        outbox::type_oid::kJsonb,
    outbox::type_oid::kTimestamptz, outbox::type_oid::kUuid,
    outbox::type_oid::kBpchar,      outbox::type_oid::kFirstUserType,
    outbox::type_oid::kName,        1700};

std::string ChangedRow(const pgoutput::Insert& insert, Random* random) {
  testing::Tuple row;
  for (const pgoutput::Value& value : insert.values) {
    const char kind = value.kind == pgoutput::Value::Kind::kText     ? 't'
                      : value.kind == pgoutput::Value::Kind::kBinary ? 'b'
                                                                     : 'n';
    row.push_back({kind, std::string(value.bytes)});
  }
  if (row.empty() || Below(16, random) == 0) {
    row.push_back(testing::NullColumn());
  }
  testing::TupleColumn& column = row[Below(row.size(), random)];
  switch (Below(8, random)) {
    case 0:
      column.kind = "tbn"[Below(3, random)];
      break;
    case 1:
      column = row[Below(row.size(), random)];
      break;
    default:
      Mutate(&column.bytes, random);
  }
  return testing::InsertBytes(insert.relation, row);
}

std::string ChangedRelation(pgoutput::Relation relation, Random* random) {
  std::vector<pgoutput::Column>& columns = relation.columns;
  if (columns.empty()) {
    return testing::RelationBytes(relation);
  }
  pgoutput::Column& column = columns[Below(columns.size(), random)];
  pgoutput::Column& other = columns[Below(columns.size(), random)];
  switch (Below(6, random)) {
    case 0:
      column.type_oid = kTypes[Below(std::size(kTypes), random)];
      break;
    case 1:
      std::swap(column, other);
      break;
    case 2:
      column.name = other.name;
      break;
    case 3:
      column.name = "other";
      break;
    case 4:
      columns.pop_back();
      break;
    default:
      relation.id.oid += static_cast<std::uint32_t>(Below(3, random)) - 1;
  }
  return testing::RelationBytes(relation);
}

std::string ChangedPayload(std::string payload, Random* random) {
  pgoutput::Decoder decoder;
  pgoutput::Message message;
  if (Below(4, random) != 0 && decoder.Decode(payload, &message).ok()) {
    if (const auto* insert = std::get_if<pgoutput::Insert>(&message)) {
      return ChangedRow(*insert, random);
    }
    if (auto* relation = std::get_if<pgoutput::Relation>(&message)) {
      return ChangedRelation(std::move(*relation), random);
    }
  }
  Mutate(&payload, random);
  return payload;
}

void ChangeEntry(std::string* entry, Random* random) {
  const absl::StatusOr<pgoutput::Frame> frame = pgoutput::DecodeFrame(*entry);
  if (frame.ok() && std::holds_alternative<pgoutput::XLogData>(*frame)) {
    const std::string payload(std::get<pgoutput::XLogData>(*frame).payload);
    *entry = testing::XLogDataFrame(ChangedPayload(payload, random));
  } else {
    Mutate(entry, random);
  }
}

void Change(IntakeInput* input, Random* random) {
  std::vector<std::string>& entries = input->entries;
  const auto anywhere = [&] {
    return entries.begin() + static_cast<std::ptrdiff_t>(Below(entries.size() + 1, random));
  };
  if (entries.empty()) {
    entries.emplace_back(IntakeInput::kReconnect);
  }
  std::string& entry = entries[Below(entries.size(), random)];
  switch (Below(16, random)) {
    case 0:
      input->settings = static_cast<std::uint8_t>(Below(256, random));
      break;
    case 1:
      std::swap(entry, entries[Below(entries.size(), random)]);
      break;
    case 2:
      entries.insert(anywhere(), std::string(entry));
      break;
    case 3:
      entries.erase(entries.begin() + (&entry - entries.data()));
      break;
    case 4:
      entries.insert(anywhere(), std::string(IntakeInput::kReconnect));
      break;
    case 5:
      entries.insert(anywhere(), std::string(IntakeInput::kGiveUp));
      break;
    case 6:
    case 7:
      entries.insert(anywhere(), {IntakeInput::kSettle, static_cast<char>(Below(256, random))});
      break;
    case 8:  // all of it once more, as after a reconnect
      entries.insert(entries.end(), entries.begin(), anywhere());
      break;
    default:
      ChangeEntry(&entry, random);
  }
}

}  // namespace
}  // namespace walpost::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t size_max, unsigned int seed) {
  using walpost::fuzz::IntakeInput;
  walpost::fuzz::Random random(seed);
  auto input = IntakeInput::Split(std::string_view(reinterpret_cast<const char*>(data), size));
  for (std::size_t times = 1 + walpost::fuzz::Below(3, &random); times > 0; --times) {
    walpost::fuzz::Change(&input, &random);
  }
  const std::string bytes = input.Join();
  const std::size_t taken = std::min(bytes.size(), size_max);
  std::memcpy(data, bytes.data(), taken);
  return taken;
}
