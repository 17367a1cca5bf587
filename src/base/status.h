// RETURN_IF_ERROR, ASSIGN_OR_RETURN, Annotate - the few status helpers abseil 20220623 lacks.
// Meaning of codes in this project: kUnavailable, kDeadlineExceeded = retry with back-off;
// kFailedPrecondition, kPermissionDenied, kNotFound = an operator must act; kInvalidArgument = bad
// configuration or usage; kDataLoss = undecodable or impossible input, stop without confirming;
// kInternal = our bug.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

namespace walpost::base {

// "<context>: <message>", same code. An OK status stays OK.
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) {
    return status;
  }
  return absl::Status(status.code(),
                      absl::StrFormat("%s: %s", context, std::string(status.message())));
}

}  // namespace walpost::base

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status walpost_status = (expression); !walpost_status.ok()) { \
      return walpost_status;                                                \
    }                                                                       \
  } while (false)

#define WALPOST_CONCAT_INNER(a, b) a##b
#define WALPOST_CONCAT(a, b) WALPOST_CONCAT_INNER(a, b)

#define ASSIGN_OR_RETURN(declaration, expression) \
  WALPOST_ASSIGN_OR_RETURN(WALPOST_CONCAT(walpost_status_or_, __LINE__), declaration, expression)

#define WALPOST_ASSIGN_OR_RETURN(variable, declaration, expression) \
  auto variable = (expression);                                     \
  if (!variable.ok()) {                                             \
    return variable.status();                                       \
  }                                                                 \
  declaration = *std::move(variable)
