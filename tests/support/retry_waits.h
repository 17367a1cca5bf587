// RetryWaits - DeadLetterTable::NextDecision's rule for one row, for the tables that tests have in memory.
#pragma once

#include <string>

#include "base/dead_letter.h"

namespace walpost::testing {

// Until the stream has passed the row.
inline bool RetryWaits(const base::DeadLetter& row, const std::string& streamed_to) {
  constexpr std::size_t kSystemIdentifierSize = 16;
  return row.parked && row.retry() && row.position >= streamed_to &&
         row.position.substr(0, kSystemIdentifierSize) ==
             streamed_to.substr(0, kSystemIdentifierSize);
}

}  // namespace walpost::testing
