// DecimalText - a numeric with a fixed scale, as Java's BigDecimal prints it: 0E-10, 1.50.
// Thread: free functions.
// Errors: kInvalidArgument for NaN and infinities; never the value itself.
// Source: PostgreSQL source, numeric_send; Java SE, BigDecimal.toString.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

// numeric(p,s) with s >= 0; a plain numeric has no scale of its own.
bool HasFixedScale(std::int32_t modifier);

absl::StatusOr<std::string> DecimalText(const pgoutput::Value& value);

}  // namespace walpost::outbox
