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

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

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
