// What the JSON of /status and a slot mean, in words and as a judgement of a monitoring plugin.
// Thread: free functions; pure: times are those of the JSON.
// Source: docs/metrics.md, Status; Monitoring Plugins Development Guidelines (exit codes 0 to 3).
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "postgres/slots.h"

namespace walpost::operations {

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

}  // namespace walpost::operations
