// ConnectColumn - a column's values as Debezium gives them to Kafka Connect, written as its
// SimpleHeaderConverter writes headers and as its schemaless JsonConverter writes JSON.
// Why: placed columns look the same to consumers, to the byte.
// Thread: a value.
// Lifetime: a text points into the value's bytes or into `scratch`.
// Units: time and timestamp are milliseconds up to a precision of 3, else microseconds; date is
//   days since 1970.
// Errors: kInvalidArgument for an infinite time, and for what is not UTF-8 in JSON; never the value
//   itself.
// Source: tests/debezium, which compares with the real ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

// DecimalText - a numeric with a fixed scale, as Java's BigDecimal prints it: 0E-10, 1.50.
// Thread: free functions.
// Errors: kInvalidArgument for NaN and infinities; never the value itself.
// Source: PostgreSQL source, numeric_send; Java SE, BigDecimal.toString.

// numeric(p,s) with s >= 0; a plain numeric has no scale of its own.
bool HasFixedScale(std::int32_t modifier);

absl::StatusOr<std::string> DecimalText(const pgoutput::Value& value);

class ConnectColumn {
 public:
  // Nothing for a type that is not supported. `oid` is below the domain, `modifier` of the column
  // itself: nothing is known of a domain's own.
  static std::optional<ConnectColumn> Of(std::uint32_t oid, std::int32_t modifier, bool is_domain);

  // Of a value that is not null.
  absl::StatusOr<std::string_view> Text(const pgoutput::Value& value, std::string* scratch) const;
  // Null as null.
  absl::Status AppendJson(const pgoutput::Value& value, std::string* json) const;

  bool is_text() const { return kind_ == Kind::kText; }

  bool is_bytes() const { return kind_ == Kind::kBytes; }

  bool is_decimal() const { return kind_ == Kind::kDecimal; }

 private:
  enum class Kind { kText, kBool, kInteger, kReal, kDecimal, kBytes, kTime, kInstant };

  ConnectColumn(Kind kind, std::uint32_t oid, bool millis)
      : kind_(kind), oid_(oid), millis_(millis) {}

  Kind kind_;
  std::uint32_t oid_;
  bool millis_;
};

// Between quotes. False when it is not UTF-8.
bool AppendJsonText(std::string_view text, std::string* json);

// As Java prints a double: 1.0E10.
std::string JavaNumber(double number);

}  // namespace walpost::outbox
