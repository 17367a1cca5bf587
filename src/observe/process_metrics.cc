#include "observe/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace walpost::observe {
namespace {

// A line of /proc/self/status such as "VmHWM:    1234 kB".
double StatusField(const std::string& status, const std::string& name) {
  const std::size_t at = status.find(name + ":");
  return at == std::string::npos ? 0 : std::strtod(status.c_str() + at + name.size() + 1, nullptr);
}

double BootTimeSeconds() {
  std::ifstream stat("/proc/stat");
  std::string word;
  while (stat >> word) {
    if (word == "btime") {
      double seconds = 0;
      stat >> seconds;
      return seconds;
    }
  }
  return 0;
}

double StartTimeSeconds() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Field 22; the second field is in parentheses and may hold spaces.
  const std::size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(after_name + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
  }
  return BootTimeSeconds() +
         std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessMetrics ReadProcessMetrics() {
  ProcessMetrics metrics;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  metrics.cpu_seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                        static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  std::ifstream file("/proc/self/status");
  const std::string status((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  metrics.resident_bytes = StatusField(status, "VmRSS") * 1024;
  metrics.resident_peak_bytes = StatusField(status, "VmHWM") * 1024;
  metrics.virtual_bytes = StatusField(status, "VmSize") * 1024;
  metrics.threads = StatusField(status, "Threads");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    (void)entry;
    ++metrics.open_fds;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  metrics.max_fds = static_cast<double>(limit.rlim_cur);
  static const double start_time = StartTimeSeconds();
  metrics.start_time_seconds = start_time;
  return metrics;
}

}  // namespace walpost::observe
