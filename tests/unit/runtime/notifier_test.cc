#include "runtime/notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace walpost::runtime {
namespace {

using base::State;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
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
