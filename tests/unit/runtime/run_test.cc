#include "runtime/run.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace walpost::runtime {
namespace {

bool Readable(const Signals& signals) {
  pollfd descriptor{signals.fd(), POLLIN, 0};
  return poll(&descriptor, 1, 0) == 1;
}

TEST(SignalsTest, HandledSignalsAreReadNotDeliveredAndOnce) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    Signals signals;
    EXPECT_EQ(signals.Take(), 0);
    EXPECT_FALSE(Readable(signals));
    ASSERT_EQ(kill(getpid(), signal), 0);
    EXPECT_TRUE(Readable(signals));
    EXPECT_EQ(signals.Take(), signal);
    EXPECT_EQ(signals.Take(), 0);
  }
}

TEST(SignalsTest, DifferentSignalsAreAllSeen) {
  Signals signals;
  kill(getpid(), SIGHUP);
  kill(getpid(), SIGTERM);
  const int first = signals.Take();
  const int second = signals.Take();
  EXPECT_EQ(first + second, SIGHUP + SIGTERM);
  EXPECT_EQ(signals.Take(), 0);
}

TEST(SignalsTest, WriteToAClosedPipeIsAnErrorNotTheEnd) {
  Signals signals;
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(ends[1]);
}

}  // namespace
}  // namespace walpost::runtime
