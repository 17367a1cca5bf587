#include "pipeline/status_clock.h"

#include <gtest/gtest.h>

#include <chrono>

namespace walpost::pipeline {
namespace {

using base::Lsn;
using std::chrono::milliseconds;

class StatusClockTest : public testing::Test {
 protected:
  static base::Now At(int ms) {
    return base::Now{base::MonotonicTime(std::chrono::hours(1) + milliseconds(ms)),
                     base::WallTime()};
  }

  bool Due(int ms, Lsn safe = Lsn()) const { return clock_.StatusDue(safe, At(ms)); }

  // One of a burst of keepalives that ask for a reply while an event is undelivered.
  bool Request(int ms, Lsn wal_end = Lsn(500), bool undelivered = true) {
    return clock_.OnKeepalive(wal_end, true, undelivered, At(ms));
  }

  StatusClock clock_;
};

TEST_F(StatusClockTest, IdleStreamIsAnsweredEveryTenSeconds) {
  clock_.Start(60'000, At(0));
  EXPECT_FALSE(Due(9'999));
  EXPECT_TRUE(Due(10'000));
  EXPECT_EQ(clock_.NextDeadline(Lsn()), At(10'000).mono);
  clock_.OnStatusTaken(Lsn(), At(10'500));
  EXPECT_FALSE(Due(20'499));
  EXPECT_TRUE(Due(20'500));
}

// Failure 6.
TEST_F(StatusClockTest, ShortServerTimeoutIsAnsweredThreeTimesWithinIt) {
  clock_.Start(3'000, At(0));
  EXPECT_FALSE(Due(999));
  EXPECT_TRUE(Due(1'000));
}

TEST_F(StatusClockTest, TinyServerTimeoutDoesNotBecomeABusyLoop) {
  clock_.Start(3, At(0));
  clock_.OnStatusTaken(Lsn(), At(10));
  EXPECT_FALSE(Due(109));
  EXPECT_TRUE(Due(110));
}

TEST_F(StatusClockTest, ServerWithoutTimeoutIsAnsweredAllTheSame) {
  clock_.Start(0, At(0));
  EXPECT_FALSE(Due(9'999));
  EXPECT_TRUE(Due(10'000));
}

TEST_F(StatusClockTest, MovedPositionIsConfirmedWithinATenthOfASecond) {
  clock_.Start(60'000, At(0));
  EXPECT_FALSE(Due(99, Lsn(200)));
  EXPECT_TRUE(Due(100, Lsn(200)));
  clock_.OnStatusTaken(Lsn(200), At(100));
  EXPECT_FALSE(Due(5'000, Lsn(200)));
  EXPECT_TRUE(Due(5'000, Lsn(201)));
}

TEST_F(StatusClockTest, RequestedReplyIsDueAtOnceAndOnce) {
  clock_.Start(60'000, At(0));
  clock_.OnKeepalive(Lsn(500), false, false, At(1));
  EXPECT_FALSE(Due(1));
  clock_.OnKeepalive(Lsn(500), true, false, At(2));
  EXPECT_TRUE(Due(2));
  EXPECT_LE(clock_.NextDeadline(Lsn()), At(2).mono);
  clock_.OnStatusTaken(Lsn(), At(2));
  EXPECT_FALSE(Due(2));
}

TEST_F(StatusClockTest, SilentServerIsAskedOnceAtHalfTimeAndGivenUpAtFull) {
  clock_.Start(6'000, At(0));
  EXPECT_FALSE(clock_.OnStatusTaken(Lsn(), At(2'000)));
  EXPECT_TRUE(Due(3'000)) << "half of wal_sender_timeout";
  EXPECT_TRUE(clock_.OnStatusTaken(Lsn(), At(3'000)));
  EXPECT_FALSE(Due(3'001)) << "asked already";
  EXPECT_FALSE(clock_.OnStatusTaken(Lsn(), At(5'000)));
  EXPECT_FALSE(clock_.SilentTooLong(At(5'999)));
  EXPECT_TRUE(clock_.SilentTooLong(At(6'000)));
}

TEST_F(StatusClockTest, ServerThatPromisedNothingIsAskedAfterHalfAMinute) {
  clock_.Start(0, At(0));
  EXPECT_FALSE(clock_.OnStatusTaken(Lsn(), At(29'999)));
  EXPECT_TRUE(clock_.OnStatusTaken(Lsn(), At(30'000)));
  EXPECT_FALSE(clock_.Silent(At(59'999)));
  EXPECT_TRUE(clock_.Silent(At(60'000)));
  EXPECT_FALSE(clock_.SilentTooLong(At(3'600'000)));
}

TEST_F(StatusClockTest, LongTimeoutDoesNotHideASilence) {
  clock_.Start(3'600'000, At(0));
  EXPECT_TRUE(clock_.OnStatusTaken(Lsn(), At(30'000))) << "it is asked";
  EXPECT_FALSE(clock_.Silent(At(59'999)));
  EXPECT_TRUE(clock_.Silent(At(60'000)));
  EXPECT_FALSE(clock_.SilentTooLong(At(3'599'999)));
  EXPECT_TRUE(clock_.SilentTooLong(At(3'600'000)));
}

// However long it is borne.
TEST_F(StatusClockTest, ServerMayHaveGivenUpASilentConnectionAfterItsTimeout) {
  clock_.Start(6'000, At(0), /*doublings=*/3);
  EXPECT_TRUE(clock_.OnStatusTaken(Lsn(1), At(24'000)));
  EXPECT_TRUE(clock_.MayBeGone(At(24'000)));
  EXPECT_FALSE(clock_.SilentTooLong(At(24'000)));
  clock_.OnBytes(At(24'001));
  EXPECT_FALSE(clock_.MayBeGone(At(24'001)));
}

TEST_F(StatusClockTest, SilenceThatWasNeverAskedAboutIsNotHeldAgainstTheServer) {
  clock_.Start(6'000, At(0));
  EXPECT_FALSE(clock_.SilentTooLong(At(60'000)));  // the loop was stopped, not the server
}

TEST_F(StatusClockTest, AnythingReceivedEndsTheSilence) {
  clock_.Start(6'000, At(0));
  ASSERT_TRUE(clock_.OnStatusTaken(Lsn(), At(3'000)));
  clock_.OnData(At(5'000));
  EXPECT_FALSE(clock_.SilentTooLong(At(10'999)));
  EXPECT_TRUE(clock_.OnStatusTaken(Lsn(), At(8'000))) << "asked again after half the time";
}

TEST_F(StatusClockTest, SilenceDoesNotCountWhileReadingIsPaused) {
  clock_.Start(6'000, At(0));
  ASSERT_TRUE(clock_.OnStatusTaken(Lsn(), At(3'000)));
  clock_.OnPaused(At(5'900));
  EXPECT_FALSE(clock_.SilentTooLong(At(6'000)));
}

TEST_F(StatusClockTest, FiveRequestsShowThatTheServerIsStopping) {
  clock_.Start(60'000, At(0));
  EXPECT_FALSE(Request(0));
  EXPECT_FALSE(Request(1));
  EXPECT_FALSE(Request(2));
  EXPECT_FALSE(Request(3));
  EXPECT_TRUE(Request(4));
}

TEST_F(StatusClockTest, FiveRequestsOnASlowConnectionShowItToo) {
  clock_.Start(60'000, At(0));
  EXPECT_FALSE(Request(0));
  EXPECT_FALSE(Request(2'000));
  EXPECT_FALSE(Request(4'000));
  EXPECT_FALSE(Request(6'000));
  EXPECT_TRUE(Request(8'000));
}

TEST_F(StatusClockTest, RequestsWithChangesBetweenThemAreOrdinary) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Request(10 * i));
    clock_.OnData(At(10 * i + 5));
  }
}

TEST_F(StatusClockTest, RequestsFarApartAreOrdinary) {
  clock_.Start(60'000, At(0));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Request(i * 2'001)) << i;
  }
}

TEST_F(StatusClockTest, RequestsAtAMovingPositionAreOrdinary) {
  clock_.Start(60'000, At(0));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Request(i, Lsn(500 + static_cast<std::uint64_t>(i)))) << i;
  }
}

TEST_F(StatusClockTest, RequestsWithNothingUndeliveredAreAnsweredAndDoNotAddUp) {
  clock_.Start(60'000, At(0));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Request(i, Lsn(500), /*undelivered=*/false)) << i;
  }
  // The first with something undelivered begins to count.
  EXPECT_FALSE(Request(20));
  EXPECT_FALSE(Request(21));
  EXPECT_FALSE(Request(22));
  EXPECT_TRUE(Request(23));
}

TEST_F(StatusClockTest, KeepalivesThatAskForNothingDoNotCount) {
  clock_.Start(60'000, At(0));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(clock_.OnKeepalive(Lsn(500), false, true, At(i)));
  }
}

TEST_F(StatusClockTest, NewConnectionForgetsTheRequestsOfTheLast) {
  clock_.Start(60'000, At(0));
  for (int i = 0; i < 4; ++i) {
    Request(i);
  }
  clock_.Start(60'000, At(10));
  EXPECT_FALSE(Due(10)) << "no reply is owed to the new connection";
  EXPECT_FALSE(Request(11));
}

}  // namespace
}  // namespace walpost::pipeline
