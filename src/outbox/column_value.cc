#include "outbox/column_value.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/byte_reader.h"
#include "base/status.h"
#include "base/text.h"
#include "outbox/time_value.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;

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
