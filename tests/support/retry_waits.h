// RetryWaits - DeadLetterTable::NextDecision's rule for one row, for the tables that tests have in
// memory.
#pragma once

#include <string>

#include "base/dead_letter.h"

namespace walpost::testing {

// Until the stream has passed the row.
inline bool RetryWaits(const base::DeadLetter& row, const std::string& streamed_to) {
  return row.parked && row.retry() && row.place >= streamed_to;
}

}  // namespace walpost::testing
