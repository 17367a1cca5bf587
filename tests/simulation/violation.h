// Violation - a promise of walpost that a history broke.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace walpost::simulation {

struct Violation {
  std::string what;  // "G5: ..."
};

template <typename... Arguments>
void Require(bool condition, const absl::FormatSpec<Arguments...>& format,
             const Arguments&... arguments) {
  if (!condition) {
    throw Violation{absl::StrFormat(format, arguments...)};
  }
}

}  // namespace walpost::simulation
