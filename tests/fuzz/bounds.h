// Bounds - no input may take more time or memory than this, whatever is in it.
// Use: one before the code under test; Check() behind it.
#pragma once

#include <glog/logging.h>
#include <sys/resource.h>

#include <ctime>

namespace walpost::fuzz {

class Bounds {
 public:
  static constexpr double kCpuSecondsMax = 5;
  static constexpr long kMemoryGrowthKbMax = 256 * 1024;

  void Check() const {
    CHECK_LT(CpuSeconds() - began_, kCpuSecondsMax);
    CHECK_LT(PeakKb() - peak_, kMemoryGrowthKbMax);
  }

 private:
  static double CpuSeconds() {
    timespec now{};
    CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }

  static long PeakKb() {
    rusage usage{};
    CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
  }

  const double began_ = CpuSeconds();
  const long peak_ = PeakKb();
};

}  // namespace walpost::fuzz
