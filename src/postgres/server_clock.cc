#include "postgres/server_clock.h"

#include <chrono>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace walpost::postgres {

absl::StatusOr<base::WallTime> ReadServerClock(SqlConnection* connection) {
  ASSIGN_OR_RETURN(const auto rows, connection->Query(absl::StrCat("SELECT ", kServerClock), {}));
  std::int64_t micros = 0;
  if (!absl::SimpleAtoi(rows.at(0)[0].value_or(""), &micros)) {
    return absl::InternalError("the server's clock is not a number");
  }
  return base::WallTime(std::chrono::microseconds(micros));
}

}  // namespace walpost::postgres
