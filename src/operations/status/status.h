// ShowStatus, HealthCheck - what a running walpost says of itself: in words, as JSON, for
// monitoring.
// Why: the person on call sees what is wrong and what to type without knowing where to look. When
//   walpost does not answer, it shows what the server knows about the slot instead.
// Thread: blocking.
// Errors: 69 when nothing answers, 77 when the token is rejected, 1 for HealthCheck. With
//   `exit_code` those of monitoring plugins, see StatusText.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "operations/outcome.h"
#include "postgres/connect.h"
#include "postgres/slots.h"

namespace walpost::operations {

// What the JSON of /status and a slot mean, in words and as a judgement of a monitoring plugin.
// Thread: free functions; pure: times are those of the JSON.
// Source: docs/metrics.md, Status; Monitoring Plugins Development Guidelines (exit codes 0 to 3).
struct Thresholds {
  // The oldest event in flight, since its commit; and a state that is not streaming.
  std::chrono::milliseconds wait_warning{120'000};
  std::chrono::milliseconds wait_critical{300'000};
  // What the server has written and walpost has not confirmed.
  std::uint64_t lag_warning = 2'000'000'000;
  std::uint64_t lag_critical = 10'000'000'000;
};

struct Judgement {
  enum class Level { kOk = 0, kWarning = 1, kCritical = 2, kUnknown = 3 };  // the exit codes

  Level level = Level::kOk;
  std::string why;
};

// `live` is /livez's answer: whether the loop turns.
Judgement JudgeStatus(const nlohmann::json& status, bool live, const Thresholds& thresholds);
std::string StatusAsText(const nlohmann::json& status, bool live);

// Of the slot when nothing answers; nullopt = it does not exist.
Judgement JudgeSlot(const std::optional<postgres::SlotInfo>& slot);
std::string SlotAsText(const std::string& name, const std::optional<postgres::SlotInfo>& slot);

// "WALPOST OK: shop, streaming | lag=0B ...": the first line of a plugin's output.
std::string PluginLine(const Judgement& judgement, const nlohmann::json& status);

// "1.5 GiB", "3.2 s", "2 h 5 min".
std::string BytesText(std::uint64_t bytes);
std::string DurationText(std::chrono::milliseconds duration);

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
