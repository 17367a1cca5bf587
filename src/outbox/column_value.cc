#include "outbox/column_value.h"

#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/status.h"
#include "base/text.h"

namespace walpost::outbox {

void AnnouncedTypes::Add(const pgoutput::Type& type) {
  if (types_.size() < kMax) {
    types_.push_back({type.oid, std::string(type.schema), std::string(type.name)});
  }
}

void AnnouncedTypes::GiveTo(TableMapper* mapper) {
  if (mapper != nullptr) {
    mapper->Unbind();
    for (const Kept& type : types_) {
      mapper->Learn({type.oid, type.schema, type.name});
    }
  }
  types_.clear();
}

namespace {

using pgoutput::Value;

constexpr std::int64_t kUnixDaysOf2000 = 10'957;

absl::StatusOr<std::int64_t> ReadBinary(const Value& value, bool wide) {
  base::ByteReader reader(value.bytes);
  const std::int64_t number = wide ? reader.I64() : reader.I32();
  if (!reader.AtEnd()) {
    return absl::InvalidArgumentError("a binary time of another size");
  }
  const std::int64_t last = wide ? std::numeric_limits<std::int64_t>::max()
                                 : std::int64_t{std::numeric_limits<std::int32_t>::max()};
  const std::int64_t first = wide ? std::numeric_limits<std::int64_t>::min()
                                  : std::int64_t{std::numeric_limits<std::int32_t>::min()};
  if (number == last || number == first) {
    return absl::InvalidArgumentError("an infinite time");
  }
  return number;
}

absl::StatusOr<absl::Time> Parse(std::string_view text, const char* format) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(format, absl::string_view(text.data(), text.size()), &time, &error) ||
      time == absl::InfiniteFuture() || time == absl::InfinitePast()) {
    return absl::InvalidArgumentError("a time that is infinite or not in ISO form");
  }
  return time;
}

// The year that 44 BC is has the number -43, since no year 0 lies between 1 BC and 1.
std::string WithSignedYear(std::string_view text) {
  constexpr std::string_view kBeforeChrist = " BC";
  std::int64_t year = 0;
  const std::size_t end = text.find('-');
  if (!text.ends_with(kBeforeChrist) || end == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(text.substr(0, end)), &year) || year < 1) {
    return std::string(text);
  }
  text.remove_suffix(kBeforeChrist.size());
  return std::to_string(1 - year) + std::string(text.substr(end));
}

}  // namespace

absl::StatusOr<std::int64_t> ToUnixDays(const Value& value) {
  if (value.is_binary()) {
    ASSIGN_OR_RETURN(const std::int64_t days, ReadBinary(value, false));
    return days + kUnixDaysOf2000;
  }
  ASSIGN_OR_RETURN(const absl::Time time, Parse(WithSignedYear(value.bytes), "%Y-%m-%d"));
  return absl::ToCivilDay(time, absl::UTCTimeZone()) - absl::CivilDay(1970, 1, 1);
}

absl::StatusOr<std::int64_t> ToDayMicros(const Value& value) {
  if (value.is_binary()) {
    return ReadBinary(value, true);
  }
  if (value.bytes == "24:00:00") {
    return std::int64_t{86'400'000'000};
  }
  ASSIGN_OR_RETURN(const absl::Time time, Parse(value.bytes, "%H:%M:%E*S"));
  return absl::ToUnixMicros(time);
}

absl::StatusOr<base::WallTime> ToInstant(const Value& value) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  constexpr const char* kTooLate = "a time so late that no count of microseconds reaches it";
  if (value.is_binary()) {
    ASSIGN_OR_RETURN(const std::int64_t micros, ReadBinary(value, true));
    return micros > kLast - base::kPostgresEpochUnixMicros
               ? absl::StatusOr<base::WallTime>(absl::InvalidArgumentError(kTooLate))
               : base::FromPostgresMicros(micros);
  }
  const std::string text = WithSignedYear(value.bytes);
  const bool offset = text.find_first_of("+-", text.find(' ')) != std::string::npos;
  ASSIGN_OR_RETURN(const absl::Time time,
                   Parse(text, offset ? "%Y-%m-%d %H:%M:%E*S%Ez" : "%Y-%m-%d %H:%M:%E*S"));
  if (time > absl::FromUnixMicros(kLast)) {
    return absl::InvalidArgumentError(kTooLate);
  }
  return base::WallTime(std::chrono::microseconds(absl::ToUnixMicros(time)));
}

namespace {

absl::Status WrongSize(std::uint32_t oid, std::size_t size) {
  return absl::InvalidArgumentError(
      absl::StrFormat("a binary %s of %u bytes", TypeName(oid), size));
}

std::string_view UuidText(std::string_view bytes, std::string* scratch) {
  scratch->resize(36);
  char* out = scratch->data();
  for (std::size_t i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      *out++ = '-';
    }
    const auto byte = static_cast<unsigned char>(bytes[i]);
    out = base::WriteHex(byte, out);
  }
  return *scratch;
}

int HexValue(char digit) {
  if (digit >= '0' && digit <= '9') {
    return digit - '0';
  }
  if (digit >= 'a' && digit <= 'f') {
    return digit - 'a' + 10;
  }
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

// bytea_output = hex, which the connection asks for.
absl::StatusOr<std::string_view> HexBytes(std::string_view text, std::string* scratch) {
  if (text.size() < 2 || text[0] != '\\' || text[1] != 'x' || text.size() % 2 != 0) {
    return absl::InvalidArgumentError("a bytea that is not in hex form");
  }
  scratch->resize(text.size() / 2 - 1);
  for (std::size_t i = 0; i < scratch->size(); ++i) {
    const int high = HexValue(text[2 + 2 * i]);
    const int low = HexValue(text[3 + 2 * i]);
    if (high < 0 || low < 0) {
      return absl::InvalidArgumentError("a bytea that is not in hex form");
    }
    (*scratch)[i] = static_cast<char>(high * 16 + low);
  }
  return std::string_view(*scratch);
}

absl::StatusOr<std::int64_t> BinaryInteger(std::string_view bytes, std::uint32_t oid) {
  base::ByteReader reader(bytes);
  std::int64_t number = 0;
  if (oid == type_oid::kInt2) {
    number = static_cast<std::int16_t>(reader.U16());
  } else if (oid == type_oid::kInt4) {
    number = reader.I32();
  } else {
    number = reader.I64();
  }
  if (!reader.AtEnd()) {
    return WrongSize(oid, bytes.size());
  }
  return number;
}

}  // namespace

std::uint32_t BuiltInType(std::string_view name) {
  static constexpr std::pair<std::string_view, std::uint32_t> kTypes[] = {
      {"bool", type_oid::kBool},
      {"bytea", type_oid::kBytea},
      {"name", type_oid::kName},
      {"int8", type_oid::kInt8},
      {"int2", type_oid::kInt2},
      {"int4", type_oid::kInt4},
      {"text", type_oid::kText},
      {"json", type_oid::kJson},
      {"bpchar", type_oid::kBpchar},
      {"varchar", type_oid::kVarchar},
      {"timestamptz", type_oid::kTimestamptz},
      {"uuid", type_oid::kUuid},
      {"jsonb", type_oid::kJsonb},
      {"oid", type_oid::kOid},
      {"float4", type_oid::kFloat4},
      {"float8", type_oid::kFloat8},
      {"date", type_oid::kDate},
      {"time", type_oid::kTime},
      {"timestamp", type_oid::kTimestamp},
      {"numeric", type_oid::kNumeric}};
  for (const auto& [known, oid] : kTypes) {
    if (name == known) {
      return oid;
    }
  }
  return 0;
}

std::string TypeName(std::uint32_t oid) {
  switch (oid) {
    case type_oid::kBool:
      return "boolean";
    case type_oid::kBytea:
      return "bytea";
    case type_oid::kName:
      return "name";
    case type_oid::kInt8:
      return "bigint";
    case type_oid::kInt2:
      return "smallint";
    case type_oid::kInt4:
      return "integer";
    case type_oid::kText:
      return "text";
    case type_oid::kJson:
      return "json";
    case type_oid::kBpchar:
      return "character";
    case type_oid::kVarchar:
      return "character varying";
    case type_oid::kTimestamptz:
      return "timestamptz";
    case type_oid::kUuid:
      return "uuid";
    case type_oid::kJsonb:
      return "jsonb";
    case type_oid::kOid:
      return "oid";
    case type_oid::kFloat4:
      return "real";
    case type_oid::kFloat8:
      return "double precision";
    case type_oid::kDate:
      return "date";
    case type_oid::kTime:
      return "time";
    case type_oid::kTimestamp:
      return "timestamp";
    case type_oid::kNumeric:
      return "numeric";
    default:
      return absl::StrFormat("type with OID %u", oid);
  }
}

bool IsInteger(std::uint32_t oid) {
  return oid == type_oid::kInt2 || oid == type_oid::kInt4 || oid == type_oid::kInt8;
}

bool IsTextual(std::uint32_t oid) {
  return IsInteger(oid) || oid == type_oid::kBool || oid == type_oid::kName ||
         oid == type_oid::kText || oid == type_oid::kJson || oid == type_oid::kBpchar ||
         oid == type_oid::kVarchar || oid == type_oid::kUuid || oid == type_oid::kJsonb ||
         oid >= type_oid::kFirstUserType;
}

bool IsPayload(std::uint32_t oid) { return oid == type_oid::kBytea || IsTextual(oid); }

absl::StatusOr<std::string_view> ToText(const Value& value, std::uint32_t oid,
                                        std::string* scratch) {
  const std::string_view bytes = value.bytes;
  if (value.kind == Value::Kind::kText) {
    if (oid == type_oid::kBool) {
      return std::string_view(bytes == "t" ? "true" : "false");
    }
    return bytes;
  }
  switch (oid) {
    case type_oid::kUuid:
      if (bytes.size() != 16) {
        return WrongSize(oid, bytes.size());
      }
      return UuidText(bytes, scratch);
    case type_oid::kJsonb:
      // One version byte, always 1, then text.
      if (bytes.empty() || bytes[0] != 1) {
        return absl::InvalidArgumentError("a jsonb of an unknown binary version");
      }
      return bytes.substr(1);
    case type_oid::kBool:
      if (bytes.size() != 1) {
        return WrongSize(oid, bytes.size());
      }
      return std::string_view(bytes[0] != 0 ? "true" : "false");
    case type_oid::kInt2:
    case type_oid::kInt4:
    case type_oid::kInt8: {
      const absl::StatusOr<std::int64_t> number = BinaryInteger(bytes, oid);
      if (!number.ok()) {
        return number.status();
      }
      scratch->resize(20);
      const auto end = std::to_chars(scratch->data(), scratch->data() + scratch->size(), *number);
      scratch->resize(static_cast<std::size_t>(end.ptr - scratch->data()));
      return std::string_view(*scratch);
    }
    default:
      return bytes;
  }
}

absl::StatusOr<std::string_view> ToBytes(const Value& value, std::uint32_t oid,
                                         std::string* scratch) {
  if (oid != type_oid::kBytea) {
    return ToText(value, oid, scratch);
  }
  if (value.kind == Value::Kind::kText) {
    return HexBytes(value.bytes, scratch);
  }
  return value.bytes;
}

absl::StatusOr<std::int64_t> ToInteger(const Value& value, std::uint32_t oid) {
  if (value.is_binary()) {
    return BinaryInteger(value.bytes, oid);
  }
  std::int64_t number = 0;
  const char* end = value.bytes.data() + value.bytes.size();
  const auto result = std::from_chars(value.bytes.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) {
    return absl::InvalidArgumentError("text that is not an integer");
  }
  return number;
}

absl::StatusOr<base::WallTime> ToTime(const Value& value) {
  ASSIGN_OR_RETURN(const base::WallTime time, ToInstant(value));
  if (!base::IsWithinYears(time)) {
    return absl::InvalidArgumentError("a time outside the years 1 to 9999");
  }
  return time;
}

}  // namespace walpost::outbox
