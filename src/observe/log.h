// Log - structured log lines with stable event names, as text or JSON on stderr.
// Why: an operator greps for `event`, not for prose; glog stays underneath for CHECK failures and
//   libraries.
// Thread: any.
// Limits: never row values, payloads or passwords. Example: Log(Severity::kWarning, "source_lost",
//   "connection to db:5432 lost; retry in 0.8 s", {{"lsn", "0/1A"}});
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace walpost::observe {

enum class Severity { kDebug, kInfo, kWarning, kError };

enum class LogFormat { kText, kJson };

struct LogField {
  std::string name;
  std::string value;
};

// Once, before other threads start; routes glog's own lines into the same format.
void InitLogging(Severity minimum, LogFormat format);
void SetLogLevel(Severity minimum);
void Log(Severity severity, std::string_view event, std::string_view message,
         std::vector<LogField> fields = {});

}  // namespace walpost::observe
