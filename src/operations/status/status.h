// ShowStatus, HealthCheck - what a running walpost says of itself: in words, as JSON, for monitoring.
// Why: the person on call sees what is wrong and what to type without knowing where to look. When
//   walpost does not answer, it shows what the server knows about the slot instead.
// Thread: blocking.
// Errors: 69 when nothing answers, 77 when the token is rejected, 1 for HealthCheck. With `exit_code` those
//   of monitoring plugins, see status_text.h.
#pragma once

#include <chrono>
#include <string>

#include "operations/outcome.h"
#include "operations/status/status_text.h"
#include "postgres/connect.h"

namespace walpost::operations {

struct StatusOptions {
  std::string listen;  // http.listen
  std::string url;     // asked instead, when given
  std::string token;   // http.token; empty = none
  std::string name;
  postgres::ConnectOptions source;
  bool json = false;
  bool exit_code = false;
  Thresholds thresholds;
  std::chrono::milliseconds timeout{3'000};
};

Outcome ShowStatus(const StatusOptions& options);

// `ready`: by /readyz, else by /livez. Prints what it says.
Outcome HealthCheck(const StatusOptions& options, bool ready);

}  // namespace walpost::operations
