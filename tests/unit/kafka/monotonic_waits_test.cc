// What cnd_timedwait is for librdkafka. That a clock which is set back changes nothing is shown by
// tests/integration/clock_test.py.
#include "kafka/monotonic_waits.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <threads.h>

#include <chrono>
#include <future>

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

timespec In(milliseconds time) {
  timespec end{};
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += time.count() * 1'000'000;
  end.tv_sec += end.tv_nsec / 1'000'000'000;
  end.tv_nsec %= 1'000'000'000;
  return end;
}

class MonotonicWaitsTest : public ::testing::Test {
 protected:
  MonotonicWaitsTest() {
    UseMonotonicWaits();
    EXPECT_EQ(cnd_init(&condition_), thrd_success);
    EXPECT_EQ(mtx_init(&mutex_, mtx_plain), thrd_success);
    EXPECT_EQ(mtx_lock(&mutex_), thrd_success);
  }

  ~MonotonicWaitsTest() override {
    mtx_unlock(&mutex_);
    mtx_destroy(&mutex_);
    cnd_destroy(&condition_);
  }

  cnd_t condition_;
  mtx_t mutex_;
};

TEST_F(MonotonicWaitsTest, LibrariesFindTheProgramsOwn) {
  Dl_info found{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "cnd_timedwait"), &found), 0);
  Dl_info program{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&UseMonotonicWaits), &program), 0);
  EXPECT_EQ(found.dli_fbase, program.dli_fbase);
}

TEST_F(MonotonicWaitsTest, WaitsUntilTheEndAndNoLonger) {
  const auto begin = steady_clock::now();
  const timespec end = In(milliseconds(200));
  int code = thrd_success;
  while (code == thrd_success) {  // a wait may end for no reason
    code = cnd_timedwait(&condition_, &mutex_, &end);
  }
  EXPECT_EQ(code, thrd_timedout);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(190));
}

TEST_F(MonotonicWaitsTest, EndThatHasPassedIsATimeOutAtOnce) {
  const timespec end = In(milliseconds(0));
  EXPECT_EQ(cnd_timedwait(&condition_, &mutex_, &end), thrd_timedout);
}

TEST_F(MonotonicWaitsTest, SignalEndsTheWait) {
  bool notified = false;
  auto notifier = std::async(std::launch::async, [this, &notified] {
    mtx_lock(&mutex_);
    notified = true;
    cnd_signal(&condition_);
    mtx_unlock(&mutex_);
  });
  const timespec end = In(milliseconds(30'000));
  int code = thrd_success;
  while (!notified && code == thrd_success) {
    code = cnd_timedwait(&condition_, &mutex_, &end);
  }
  EXPECT_EQ(code, thrd_success);
}

}  // namespace
}  // namespace walpost::kafka
