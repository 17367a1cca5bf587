// Log - structured log lines with stable event names, as text or JSON on stderr.
// Why: an operator greps for `event`, not for prose; glog stays underneath for CHECK failures and
//   libraries.
// Thread: any.
// Limits: never payloads or passwords; keys of events that are not delivered, as a field. Example:
//   Log(Severity::kWarning, LogEvent::kSourceError, "connection to db:5432 lost", {{"lsn",
//   "0/1A"}});
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log_event.h"
#include "base/time.h"

namespace walpost::observe {

using base::LogEvent;

enum class Severity { kDebug, kInfo, kWarning, kError };

enum class LogFormat { kText, kJson };

struct LogField {
  std::string name;
  std::string value;
};

// Once, before other threads start; routes glog's own lines into the same format. From then on
// memory that cannot be had ends the process with an event `fatal`: which event it was for says
// nothing about that event, and what is not confirmed comes again.
void InitLogging(Severity minimum, LogFormat format);
void SetLogLevel(Severity minimum);
void Log(Severity severity, LogEvent event, std::string_view message,
         std::vector<LogField> fields = {});

// For what an outage repeats: RepeatLimiter decides, by event and cause. The line after some that
// were left out has a field `not_reported` with their number.
void LogRepeated(Severity severity, LogEvent event, std::string_view cause,
                 std::string_view message, std::vector<LogField> fields = {});

// RepeatLimiter - decides which lines of something that goes on and on are written.
// Why: an outage repeats itself for hours; its first line must be there at once, also when it
//   follows another one closely, and the others must be seen to be there without filling a disk.
// Thread: one owner.   Lifetime: keeps copies.
// Units/limits: of each event and cause kAtOnce lines, and one more for each kEvery since;
//   kCausesMax of them are remembered, and a forgotten one is only written more often.
class RepeatLimiter {
 public:
  static constexpr std::chrono::seconds kEvery{10};
  static constexpr int kAtOnce = 3;
  static constexpr std::size_t kCausesMax = 256;

  // Nothing: leave this line out. Else write it; so many were left out since the last one.
  std::optional<std::uint64_t> Take(base::LogEvent event, std::string_view cause,
                                    base::MonotonicTime now);

 private:
  struct Reported {
    base::MonotonicTime at;
    base::MonotonicTime all_again;  // when kAtOnce may be written once more
    std::uint64_t not_reported = 0;
  };

  void Forget();

  std::map<std::pair<base::LogEvent, std::string>, Reported> reported_;
};

}  // namespace walpost::observe
