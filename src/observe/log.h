// Log - structured log lines with stable event names, as text or JSON on stderr.
// Why: an operator greps for `event`, not for prose; glog stays underneath for CHECK failures and
//   libraries.
// Thread: any.
// Limits: never payloads or passwords; keys of events that are not delivered, as a field. Example:
//   Log(Severity::kWarning, LogEvent::kSourceError, "connection to db:5432 lost", {{"lsn", "0/1A"}});
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log_event.h"

namespace walpost::observe {

using base::LogEvent;

enum class Severity { kDebug, kInfo, kWarning, kError };

enum class LogFormat { kText, kJson };

struct LogField {
  std::string name;
  std::string value;
};

// Once, before other threads start; routes glog's own lines into the same format. From then on memory
// that cannot be had ends the process with an event `fatal`: which event it was for says nothing about
// that event, and what is not confirmed comes again.
void InitLogging(Severity minimum, LogFormat format);
void SetLogLevel(Severity minimum);
void Log(Severity severity, LogEvent event, std::string_view message,
         std::vector<LogField> fields = {});

// For what an outage repeats: RepeatLimiter decides, by event and cause. The line after some that
// were left out has a field `not_reported` with their number.
void LogRepeated(Severity severity, LogEvent event, std::string_view cause,
                 std::string_view message, std::vector<LogField> fields = {});

}  // namespace walpost::observe
