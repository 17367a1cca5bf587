#include "observe/process_metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace walpost::observe {
namespace {

TEST(ProcessMetricsTest, ValuesArePlausible) {
  const ProcessMetrics metrics = ReadProcessMetrics();
  EXPECT_GT(metrics.resident_bytes, 1e6);
  EXPECT_GE(metrics.resident_peak_bytes, metrics.resident_bytes / 2);
  EXPECT_GT(metrics.virtual_bytes, metrics.resident_bytes);
  EXPECT_GE(metrics.open_fds, 3);
  EXPECT_GT(metrics.max_fds, metrics.open_fds);
  EXPECT_GE(metrics.threads, 1);
  EXPECT_GE(metrics.cpu_seconds, 0);
}

TEST(ProcessMetricsTest, StartTimeIsBeforeNowAndNotLongAgo) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double started = ReadProcessMetrics().start_time_seconds;
  EXPECT_LE(started, now + 1.5);  // the kernel counts from a boot time in whole seconds
  EXPECT_GT(started, now - 3'600);
}

TEST(ProcessMetricsTest, OpenFilesAndThreadsAreCounted) {
  const ProcessMetrics before = ReadProcessMetrics();
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  std::thread thread([&] {
    std::unique_lock<std::mutex> lock(mutex);
    done_changed.wait(lock, [&] { return done; });
  });
  const ProcessMetrics after = ReadProcessMetrics();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
  done_changed.notify_one();
  thread.join();
  close(fd);
  EXPECT_EQ(after.open_fds, before.open_fds + 1);
  EXPECT_EQ(after.threads, before.threads + 1);
}

TEST(ProcessMetricsTest, CpuTimeGrowsWithWork) {
  const double before = ReadProcessMetrics().cpu_seconds;
  volatile unsigned sink = 0;
  const std::clock_t until = std::clock() + CLOCKS_PER_SEC / 10;
  while (std::clock() < until) {
    sink = sink + 1;
  }
  EXPECT_GE(ReadProcessMetrics().cpu_seconds, before + 0.05);
}

}  // namespace
}  // namespace walpost::observe
