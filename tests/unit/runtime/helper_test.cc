#include "runtime/helper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace walpost::runtime {
namespace {

using ::testing::ElementsAre;

bool Readable(const Helper& helper, int timeout_ms) {
  pollfd descriptor{helper.fd(), POLLIN, 0};
  return poll(&descriptor, 1, timeout_ms) == 1;
}

TEST(HelperTest, WorkRunsElsewhereAndDoneOnTheLoop) {
  Helper helper;
  std::thread::id worked;
  std::optional<std::thread::id> finished;
  helper.Run(
      Helper::Queue::kSource, [&worked] { worked = std::this_thread::get_id(); },
      [&finished] { finished = std::this_thread::get_id(); });
  ASSERT_TRUE(Readable(helper, 30'000));
  EXPECT_FALSE(finished) << "only RunDone may call it";
  helper.RunDone();
  ASSERT_TRUE(finished);
  EXPECT_EQ(*finished, std::this_thread::get_id());
  EXPECT_NE(worked, std::this_thread::get_id());
}

TEST(HelperTest, JobsRunOneAtATimeInOrder) {
  Helper helper;
  std::vector<int> worked;  // by one thread at a time, so it needs no lock
  std::vector<int> finished;
  for (int i = 0; i < 5; ++i) {
    helper.Run(
        Helper::Queue::kSource, [&worked, i] { worked.push_back(i); },
        [&finished, i] { finished.push_back(i); });
  }
  while (finished.size() < 5) {
    ASSERT_TRUE(Readable(helper, 30'000));
    helper.RunDone();
  }
  EXPECT_THAT(worked, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(finished, ElementsAre(0, 1, 2, 3, 4));
}

TEST(HelperTest, JobThatHangsHoldsUpItsOwnQueueOnly) {
  Helper helper;
  auto release = std::make_shared<std::promise<void>>();
  bool other = false;
  helper.Run(
      Helper::Queue::kSource, [release] { release->get_future().wait(); }, [] {});
  helper.RunnerOf(Helper::Queue::kKafka)->Run([] {}, [&other] { other = true; });
  ASSERT_TRUE(Readable(helper, 30'000));
  helper.RunDone();
  EXPECT_TRUE(other);
  release->set_value();
}

TEST(HelperTest, NothingToDoDoesNotWake) {
  Helper helper;
  EXPECT_FALSE(Readable(helper, 0));
  helper.RunDone();
  helper.Run(
      Helper::Queue::kSource, [] {}, [] {});
  ASSERT_TRUE(Readable(helper, 30'000));
  helper.RunDone();
  EXPECT_FALSE(Readable(helper, 0));
}

TEST(HelperTest, JobMayBeginAnotherFromItsDone) {
  Helper helper;
  bool second = false;
  helper.Run(
      Helper::Queue::kSource, [] {},
      [&] {
        helper.Run(
            Helper::Queue::kSource, [] {}, [&second] { second = true; });
      });
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Readable(helper, 30'000));
    helper.RunDone();
  }
  EXPECT_TRUE(second);
}

TEST(HelperTest, WhatTheJobHoldsIsReleasedByTheHelperNotKeptUntilDone) {
  Helper helper;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  helper.Run(
      Helper::Queue::kSource, [held = std::move(held)] {}, [] {});
  ASSERT_TRUE(Readable(helper, 30'000));
  EXPECT_TRUE(watch.expired()) << "a producer would outlive its session by a loop turn";
}

TEST(HelperTest, EndForgetsWhatWasFinishedButNotYetServed) {
  bool done = false;
  {
    Helper helper;
    helper.Run(
        Helper::Queue::kSource, [] {}, [&done] { done = true; });
    ASSERT_TRUE(Readable(helper, 30'000));
  }
  EXPECT_FALSE(done) << "whoever it is for may be gone already";
}

TEST(HelperTest, EndWithNothingRunningIsImmediate) {
  const auto start = std::chrono::steady_clock::now();
  { const Helper helper; }
  EXPECT_LT(std::chrono::steady_clock::now() - start, Helper::kPatience);
}

TEST(HelperTest, EndDoesNotWaitForAJobThatHangsAndDropsWhatHadNotBegun) {
  // Owned by the jobs, as the rule for jobs says: they outlive the helper.
  auto release = std::make_shared<std::promise<void>>();
  auto started = std::make_shared<std::promise<void>>();
  auto second_ran = std::make_shared<bool>(false);
  std::promise<void> dropped;
  std::shared_ptr<void> watched(nullptr, [&dropped](void*) { dropped.set_value(); });
  bool done = false;
  const auto start = std::chrono::steady_clock::now();
  {
    Helper helper;
    helper.Run(
        Helper::Queue::kSource,
        [release, started] {
          started->set_value();
          release->get_future().wait();
        },
        [&done] { done = true; });
    helper.Run(
        Helper::Queue::kSource, [second_ran, watched = std::move(watched)] { *second_ran = true; },
        [&done] { done = true; });
    started->get_future().wait();
  }
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, Helper::kPatience);
  EXPECT_LT(took, Helper::kPatience * 5);
  release->set_value();
  dropped.get_future().wait();  // the thread left behind has ended
  EXPECT_FALSE(done);
  EXPECT_FALSE(*second_ran);
}

using base::State;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A service manager, and a clock that is set by hand.
class NotifierTest : public ::testing::Test {
 protected:
  NotifierTest() : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const std::string name = "@walpost-notifier-" + std::to_string(getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    address.sun_path[0] = '\0';
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    setenv("WATCHDOG_USEC", "30000000", 1);
    unsetenv("WATCHDOG_PID");
  }

  ~NotifierTest() override {
    close(socket_);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
  }

  std::vector<std::string> Sent() const {
    std::vector<std::string> sent;
    std::array<char, 4096> message{};
    for (ssize_t size = 0; (size = recv(socket_, message.data(), message.size(), 0)) > 0;) {
      sent.emplace_back(message.data(), static_cast<std::size_t>(size));
    }
    return sent;
  }

  // A turn of the loop, and what was sent in it.
  std::vector<std::string> Turn(State state, bool waits = true) {
    if (notifier_->Turn(state, now_)) {
      notifier_->Report(state, "words", waits, now_);
    }
    return Sent();
  }

  void Pass(milliseconds time) { now_.mono += time; }

  const int socket_;
  base::Now now_{base::MonotonicTime(std::chrono::hours(1)), {}};
  std::optional<Notifier> notifier_{std::in_place};
};

class WatchedNotifierTest : public NotifierTest {
 protected:
  WatchedNotifierTest() { Remake(); }

  // By the environment as it is.
  void Remake() { notifier_.emplace(Notifier::FromEnvironment()); }
};

constexpr char kStarting[] = "STATUS=words\nEXTEND_TIMEOUT_USEC=60000000\n";
constexpr char kReady[] = "STATUS=words\nREADY=1\n";

TEST_F(NotifierTest, WithoutAServiceManagerNothingIsSent) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(Notifier::FromEnvironment().enabled());
  EXPECT_THAT(Turn(State::kStreaming), IsEmpty());
}

TEST_F(WatchedNotifierTest, ReadyIsSentOnceWhenItStreamsAndBeforeThatMoreTimeIsAskedFor) {
  EXPECT_THAT(Turn(State::kStarting), ElementsAre("WATCHDOG=1", kStarting));
  EXPECT_THAT(Turn(State::kStarting), IsEmpty());
  EXPECT_THAT(Turn(State::kStreaming), ElementsAre(kReady));
  EXPECT_THAT(Turn(State::kReconnecting), ElementsAre("STATUS=words\n"));
  EXPECT_THAT(Turn(State::kStreaming), ElementsAre("STATUS=words\n"));
}

TEST_F(WatchedNotifierTest, StandbyAndAHaltToWaitInAreReadyToo) {
  EXPECT_THAT(Turn(State::kStandby), ElementsAre("WATCHDOG=1", kReady));
  Remake();
  EXPECT_THAT(Turn(State::kHalted), ElementsAre("WATCHDOG=1", kReady));
  Remake();
  EXPECT_THAT(Turn(State::kHalted, /*waits=*/false), ElementsAre("WATCHDOG=1", kStarting));
  Remake();
  EXPECT_THAT(Turn(State::kReconnecting), ElementsAre("WATCHDOG=1", kStarting));
}

TEST_F(WatchedNotifierTest, WatchdogIsFedByTurnsAtAThirdOfItsTimeAndByNothingElse) {
  Turn(State::kStreaming);
  Pass(milliseconds(9'999));
  EXPECT_THAT(Turn(State::kStreaming), IsEmpty());
  Pass(milliseconds(1));
  EXPECT_THAT(Turn(State::kStreaming), ElementsAre("WATCHDOG=1", "STATUS=words\n"));
  Pass(seconds(60));
  EXPECT_THAT(Sent(), IsEmpty()) << "the loop has not turned";
}

TEST_F(WatchedNotifierTest, WatchdogOfAnotherProcessIsNotFed) {
  setenv("WATCHDOG_PID", "1", 1);
  Remake();
  EXPECT_THAT(Turn(State::kStreaming), ElementsAre(kReady));
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  Remake();
  EXPECT_THAT(Turn(State::kStreaming), ElementsAre("WATCHDOG=1", kReady));
}

TEST_F(WatchedNotifierTest, StoppingAsksForTimeAsLongAsTheLoopTurns) {
  Turn(State::kStreaming);
  notifier_->Stopping();
  EXPECT_THAT(Sent(), ElementsAre("STOPPING=1"));
  EXPECT_THAT(Turn(State::kDraining), ElementsAre(kStarting));
  Pass(Notifier::kReportEvery);
  EXPECT_THAT(Turn(State::kDraining), ElementsAre("WATCHDOG=1", kStarting));
}

TEST_F(WatchedNotifierTest, ReloadIsReportedFromItsBeginningToItsEndOnceReady) {
  Turn(State::kStarting);
  notifier_->Reloading(now_);
  notifier_->Reloaded();
  EXPECT_THAT(Sent(), IsEmpty());
  Turn(State::kStreaming);
  notifier_->Reloading(now_);
  notifier_->Reloaded();
  EXPECT_THAT(Sent(), ElementsAre("RELOADING=1\nMONOTONIC_USEC=3600000000\n", "READY=1"));
}

// A line of its own is a message of its own.
TEST_F(WatchedNotifierTest, StatusCannotSayMoreThanAStatus) {
  ASSERT_TRUE(notifier_->Turn(State::kReconnecting, now_));
  notifier_->Report(State::kReconnecting, "connection lost\nREADY=1", true, now_);
  for (const std::string& sent : Sent()) {
    EXPECT_THAT(sent, Not(HasSubstr("\nREADY=1")));
  }
}

TEST_F(WatchedNotifierTest, ReadyThatAFullSocketRejectsIsSentAgain) {
  for (int i = 0; i < 2'000 && notifier_->Turn(State::kStarting, now_); ++i) {
    notifier_->Report(State::kStarting, "words", true,
                      now_);  // rejected at last, so it is still due
    Pass(Notifier::kReportEvery);
  }
  ASSERT_TRUE(notifier_->Turn(State::kStreaming, now_));
  notifier_->Report(State::kStreaming, "words", true, now_);
  Sent();
  EXPECT_THAT(Turn(State::kStreaming), ::testing::Contains(kReady));
}

}  // namespace
}  // namespace walpost::runtime
