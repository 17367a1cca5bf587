// Column values as text, bytes, integers and times, from both the text and the binary form the
// server may send.
// Why: the kind byte of each value decides, not the column's type alone: a type without a binary
//   form arrives as text.
// Thread: free functions.
// Lifetime: a returned view points into the value's bytes or into `scratch`.
// Errors: kInvalidArgument says what kind of value does not fit; never the value itself.
// Source: PostgreSQL source, the *_send and *_out functions of each type; manual chapter "Data
//   Types".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "outbox/table_mapper.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

// AnnouncedTypes - the types that the server sends right before a table, until it is known whose
// they are.
// Why: it sends them for every table, each time that it announces it. A stream may hold any number
//   of other tables, whose types are not ours to keep.
// Thread: one owner.
// Limits: no more types than a table has columns (kMax); what a mapper has are those of its own
// table.
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

// Dates and times from both forms the server may send, as counts since 1970.
// Why: the stream is binary from PostgreSQL 14 on, and what verbs read is text. One value must mean
//   the same in both, or a row that was delivered is no record for `audit` and `replay`.
// Thread: free functions.
// Errors: kInvalidArgument for infinities, for what no count of microseconds reaches, and for text
//   that is not in ISO form; never the value itself.
// Source: PostgreSQL source, the *_send and *_out functions of each type; EncodeDateTime writes a
//   year before 1 as 44 BC.

// date: days since 1970.
absl::StatusOr<std::int64_t> ToUnixDays(const pgoutput::Value& value);

// time: microseconds since midnight; 24:00 is a time.
absl::StatusOr<std::int64_t> ToDayMicros(const pgoutput::Value& value);

// timestamp, as in UTC, and timestamptz.
absl::StatusOr<base::WallTime> ToInstant(const pgoutput::Value& value);

// Type OIDs are fixed in pg_type.dat for built-in types.
namespace type_oid {
inline constexpr std::uint32_t kBool = 16;
inline constexpr std::uint32_t kBytea = 17;
inline constexpr std::uint32_t kName = 19;
inline constexpr std::uint32_t kInt8 = 20;
inline constexpr std::uint32_t kInt2 = 21;
inline constexpr std::uint32_t kInt4 = 23;
inline constexpr std::uint32_t kText = 25;
inline constexpr std::uint32_t kOid = 26;
inline constexpr std::uint32_t kJson = 114;
inline constexpr std::uint32_t kFloat4 = 700;
inline constexpr std::uint32_t kFloat8 = 701;
inline constexpr std::uint32_t kBpchar = 1042;
inline constexpr std::uint32_t kVarchar = 1043;
inline constexpr std::uint32_t kDate = 1082;
inline constexpr std::uint32_t kTime = 1083;
inline constexpr std::uint32_t kTimestamp = 1114;
inline constexpr std::uint32_t kTimestamptz = 1184;
inline constexpr std::uint32_t kNumeric = 1700;
inline constexpr std::uint32_t kUuid = 2950;
inline constexpr std::uint32_t kJsonb = 3802;
// From here on types are made by users: enums, domains, extensions. Their binary form is taken as
// text.
inline constexpr std::uint32_t kFirstUserType = 16384;
}  // namespace type_oid

// The OID of a built-in type above by its name in pg_type, "int4"; 0 for any other name.
std::uint32_t BuiltInType(std::string_view name);

// "uuid", or "type 1700" for one this project has no use for; for messages.
std::string TypeName(std::uint32_t oid);

bool IsTextual(std::uint32_t oid);  // can be read by ToText
bool IsInteger(std::uint32_t oid);
bool IsPayload(std::uint32_t oid);  // can be read by ToBytes

absl::StatusOr<std::string_view> ToText(const pgoutput::Value& value, std::uint32_t oid,
                                        std::string* scratch);

// bytea as raw bytes, everything else as ToText.
absl::StatusOr<std::string_view> ToBytes(const pgoutput::Value& value, std::uint32_t oid,
                                         std::string* scratch);

absl::StatusOr<std::int64_t> ToInteger(const pgoutput::Value& value, std::uint32_t oid);

// timestamptz only. Infinities are an error, and what lies outside the years 1 to 9999: protobuf's
// Timestamp and CloudEvents have no other years.
absl::StatusOr<base::WallTime> ToTime(const pgoutput::Value& value);

}  // namespace walpost::outbox
