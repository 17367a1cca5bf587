#include "observe/log.h"

#include <glog/logging.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/text.h"

namespace walpost::observe {

using base::LogEventName;

namespace {

std::atomic<Severity> minimum_severity{Severity::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kText};
constexpr std::size_t kMemoryReserveBytes = std::size_t{64} * 1024;
std::mutex write_mutex;  // one line at a time
std::mutex repeats_mutex;

RepeatLimiter& Repeats() {  // guarded by repeats_mutex
  static auto* const limiter = new RepeatLimiter;
  return *limiter;
}

std::string_view SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return "debug";
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "info";
}

std::string Timestamp() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Quoted only when it needs to be, so that a line stays readable and still splits on spaces.
std::string TextValue(const std::string& value) {
  if (!value.empty() && value.find_first_of(" \"=\\") == std::string::npos &&
      std::none_of(value.begin(), value.end(), IsControl)) {
    return value;
  }
  return base::JsonText(nlohmann::json(value));
}

std::string TextLine(Severity severity, LogEvent event, std::string_view message,
                     const std::vector<LogField>& fields) {
  std::string line = absl::StrFormat("%s %-7s %s: %s", Timestamp(), SeverityName(severity),
                                     LogEventName(event), message);
  for (const LogField& field : fields) {
    line += " " + field.name + "=" + TextValue(field.value);
  }
  // One event, one line; and nothing in it moves the terminal's cursor.
  std::replace_if(line.begin(), line.end(), IsControl, ' ');
  return base::Printable(line) + "\n";
}

std::string JsonLine(Severity severity, LogEvent event, std::string_view message,
                     const std::vector<LogField>& fields) {
  nlohmann::ordered_json object;
  object["ts"] = Timestamp();
  object["level"] = SeverityName(severity);
  object["event"] = LogEventName(event);
  object["msg"] = message;
  for (const LogField& field : fields) {
    object[field.name] = field.value;
  }
  return base::JsonText(object) + "\n";
}

// glog's own lines (failed CHECKs, libraries) in the same shape.
class GlogSink : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char*, const char* file, int line,
            const google::LogMessageTime&, const char* message, std::size_t size) override {
    Severity level = Severity::kInfo;
    if (severity >= google::GLOG_ERROR) {
      level = Severity::kError;
    } else if (severity == google::GLOG_WARNING) {
      level = Severity::kWarning;
    }
    const std::string_view text(message, size);
    const std::string at = absl::StrFormat("%s:%d", file, line);
    if (severity == google::GLOG_FATAL) {
      Log(level, LogEvent::kFatal, text, {{"at", at}});
    } else {
      LogRepeated(level, LogEvent::kLibrary, text, text, {{"at", at}});
    }
  }
};

// So that there is memory left to log it with.
char* memory_reserve = nullptr;

[[noreturn]] void OnOutOfMemory() {
  std::set_new_handler(nullptr);
  delete[] std::exchange(memory_reserve, nullptr);
  Log(Severity::kError, LogEvent::kFatal,
      "out of memory: the process ends here, and nothing is lost; give it more, or lower "
      "source.event_bytes_max or delivery.in_flight_bytes_max; see docs/runbook.md, It has ended");
  std::abort();
}

}  // namespace

void InitLogging(Severity minimum, LogFormat format) {
  minimum_severity = minimum;
  log_format = format;
  static const bool initialized = [] {
    FLAGS_logtostderr = false;
    FLAGS_alsologtostderr = false;
    FLAGS_stderrthreshold =
        google::GLOG_FATAL;  // a failed CHECK also prints its stack the usual way
    google::InitGoogleLogging("walpost");
    for (int severity = 0; severity < google::NUM_SEVERITIES; ++severity) {
      google::SetLogDestination(severity, "");  // no files
    }
    static auto* const sink = new GlogSink;
    google::AddLogSink(sink);
    memory_reserve = new char[kMemoryReserveBytes];
    std::set_new_handler(OnOutOfMemory);
    return true;
  }();
  (void)initialized;
}

void SetLogLevel(Severity minimum) { minimum_severity = minimum; }

void LogRepeated(Severity severity, LogEvent event, std::string_view cause,
                 std::string_view message, std::vector<LogField> fields) {
  if (severity < minimum_severity.load()) {
    return;
  }
  std::optional<std::uint64_t> not_reported;
  {
    const std::lock_guard<std::mutex> lock(repeats_mutex);
    not_reported = Repeats().Take(event, cause, std::chrono::steady_clock::now());
  }
  if (!not_reported) {
    return;
  }
  if (*not_reported > 0) {
    fields.push_back({"not_reported", std::to_string(*not_reported)});
  }
  Log(severity, event, message, std::move(fields));
}

void Log(Severity severity, LogEvent event, std::string_view message,
         std::vector<LogField> fields) {
  if (severity < minimum_severity.load()) {
    return;
  }
  // What is quoted in it comes from who writes events, and from servers.
  for (LogField& field : fields) {
    field.value = base::Cut(field.value);
  }
  const std::string shown = base::Cut(message, base::kMessageBytesMax);
  const std::string line = log_format.load() == LogFormat::kJson
                               ? JsonLine(severity, event, shown, fields)
                               : TextLine(severity, event, shown, fields);
  const std::lock_guard<std::mutex> lock(write_mutex);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return;  // there is nowhere left to report it
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::optional<std::uint64_t> RepeatLimiter::Take(base::LogEvent event, std::string_view cause,
                                                 base::MonotonicTime now) {
  const auto [found, is_new] =
      reported_.try_emplace({event, std::string(cause)}, Reported{now, now, 0});
  Reported& reported = found->second;
  // Each line moves `all_again` by one interval; so many of them may lie ahead.
  if (reported.all_again > now + (kAtOnce - 1) * kEvery) {
    ++reported.not_reported;
    return std::nullopt;
  }
  reported.at = now;
  reported.all_again = std::max(reported.all_again, now) + kEvery;
  const std::uint64_t not_reported = std::exchange(reported.not_reported, 0);
  if (is_new && reported_.size() > kCausesMax) {
    Forget();
  }
  return not_reported;
}

// The one that was written longest ago.
void RepeatLimiter::Forget() {
  reported_.erase(
      std::min_element(reported_.begin(), reported_.end(),
                       [](const auto& a, const auto& b) { return a.second.at < b.second.at; }));
}

}  // namespace walpost::observe
