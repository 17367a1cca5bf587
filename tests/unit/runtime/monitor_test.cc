// What is shown of the slot's room, from the stream alone and with a monitor.

#include "runtime/monitor.h"

#include <gtest/gtest.h>

#include <cmath>

namespace walpost::runtime {
namespace {

using base::Lsn;
using base::WallTime;
using std::chrono::seconds;

class ServerViewTest : public ::testing::Test {
 protected:
  static Monitored Seen(int at, Lsn wal, std::optional<std::uint64_t> safe) {
    Monitored monitored;
    monitored.last_success = WallTime(seconds(at));
    monitored.figures.emplace();
    monitored.figures->system_identifier = 7;
    monitored.figures->wal_lsn = wal;
    monitored.figures->slot.emplace();
    monitored.figures->slot->safe_wal_bytes = safe;
    return monitored;
  }

  static base::SourceFacts Facts(std::optional<std::uint64_t> limit) {
    base::SourceFacts facts;
    facts.wal_keep_bytes = limit;
    return facts;
  }

  // At this second, with the server's newest position as the stream knows it and when it was heard.
  observe::Snapshot Show(int second, std::uint64_t server, int heard,
                         const std::optional<base::SourceFacts>& facts,
                         const std::optional<Monitored>& monitored = std::nullopt) {
    observe::Snapshot snapshot;
    snapshot.system_identifier = 7;
    snapshot.confirmed_lsn = confirmed_;
    snapshot.server_wal_lsn = Lsn(server);
    snapshot.last_frame_at = WallTime(seconds(heard));
    view_.Complete(facts, monitored, {base::MonotonicTime(seconds(second)), {}}, &snapshot);
    return snapshot;
  }

  Lsn confirmed_{1'000};
  ServerView view_;
};

TEST_F(ServerViewTest, NothingIsKnownBeforeTheFirstConnection) {
  const observe::WalRoom room = Show(0, 0, 0, std::nullopt).wal_room;
  EXPECT_FALSE(room.limit_bytes);
  EXPECT_FALSE(room.safe_bytes);
  EXPECT_FALSE(room.seconds_left);
}

TEST_F(ServerViewTest, StreamAloneShowsHowLongTheRoomLasts) {
  Show(0, 1'000, 1, Facts(10'000));
  const observe::WalRoom room = Show(100, 3'000, 2, Facts(10'000)).wal_room;
  EXPECT_EQ(room.limit_bytes, 10'000.0);
  EXPECT_EQ(room.safe_bytes, 8'000.0) << "less what is not confirmed";
  EXPECT_EQ(room.bytes_per_second, 20.0);
  EXPECT_EQ(room.seconds_left, 400.0);
}

TEST_F(ServerViewTest, LimitStaysKnownWhileDisconnected) {
  Show(0, 1'000, 1, Facts(10'000));
  EXPECT_EQ(Show(1, 1'000, 1, std::nullopt).wal_room.limit_bytes, 10'000.0);
}

// Otherwise an hour of back-pressure would look as if the server had stopped writing.
TEST_F(ServerViewTest, PositionThatNobodyRepeatsDoesNotLowerTheRate) {
  Show(0, 1'000, 1, Facts(10'000));
  Show(100, 3'000, 2, Facts(10'000));
  EXPECT_EQ(Show(1'000, 3'000, 2, Facts(10'000)).wal_room.bytes_per_second, 20.0);
  EXPECT_EQ(Show(1'100, 3'000, 3, Facts(10'000)).wal_room.bytes_per_second, 2'000.0 / 1'100);
}

TEST_F(ServerViewTest, WithoutALimitTheRoomLastsForEver) {
  confirmed_ = Lsn();
  const observe::WalRoom room = Show(0, 1'000, 1, Facts(std::nullopt)).wal_room;
  EXPECT_TRUE(std::isinf(room.limit_bytes.value()));
  EXPECT_TRUE(std::isinf(room.safe_bytes.value()));
  EXPECT_TRUE(std::isinf(room.seconds_left.value()));
}

TEST_F(ServerViewTest, IdleServerNeverFillsTheRoom) {
  Show(0, 1'000, 1, Facts(10'000));
  EXPECT_TRUE(std::isinf(Show(100, 1'000, 2, Facts(10'000)).wal_room.seconds_left.value()));
}

TEST_F(ServerViewTest, RoomThatIsUsedUpLastsNoTime) {
  const observe::WalRoom room = Show(0, 20'000, 1, Facts(10'000)).wal_room;
  EXPECT_EQ(room.safe_bytes, 0.0);
  EXPECT_EQ(room.seconds_left, 0.0) << "also while the rate is not known";
}

TEST_F(ServerViewTest, MonitorKnowsTheRoomBetterAndThePositionSooner) {
  const observe::Snapshot snapshot = Show(0, 1'000, 1, Facts(10'000), Seen(1, Lsn(5'000), 77));
  EXPECT_TRUE(snapshot.monitor.up);
  EXPECT_EQ(snapshot.wal_room.safe_bytes, 77.0);
  EXPECT_EQ(snapshot.server_wal_lsn, Lsn(5'000));
  EXPECT_EQ(Show(1, 6'000, 2, Facts(10'000), Seen(1, Lsn(5'000), 77)).server_wal_lsn, Lsn(6'000));
}

TEST_F(ServerViewTest, MonitorShowsTheRateWhileNothingIsRead) {
  Show(0, 1'000, 1, Facts(10'000), Seen(1, Lsn(1'000), 9'000));
  const observe::WalRoom room =
      Show(100, 1'000, 1, Facts(10'000), Seen(2, Lsn(2'000), 8'000)).wal_room;
  EXPECT_EQ(room.bytes_per_second, 10.0);
  EXPECT_EQ(room.seconds_left, 800.0);
}

TEST_F(ServerViewTest, MonitorWithoutTheSlotLeavesItToTheStream) {
  Monitored monitored = Seen(1, Lsn(5'000), 77);
  monitored.figures->slot.reset();
  EXPECT_EQ(Show(0, 1'000, 1, Facts(10'000), monitored).wal_room.safe_bytes, 6'000.0);
}

TEST_F(ServerViewTest, MonitorOfAnotherClusterIsNotBelieved) {
  Monitored monitored = Seen(1, Lsn(5'000), 77);
  monitored.figures->system_identifier = 8;
  const observe::Snapshot snapshot = Show(0, 1'000, 1, Facts(10'000), monitored);
  EXPECT_FALSE(snapshot.monitor.up);
  EXPECT_FALSE(snapshot.monitor.figures);
  EXPECT_NE(snapshot.monitor.error.find("another cluster"), std::string::npos);
  EXPECT_EQ(snapshot.server_wal_lsn, Lsn(1'000));
}

TEST_F(ServerViewTest, FailedLookShowsNoFigures) {
  Monitored monitored;
  monitored.error = "connection refused";
  monitored.last_success = WallTime(seconds(5));
  const observe::Snapshot snapshot = Show(0, 1'000, 1, Facts(10'000), monitored);
  EXPECT_TRUE(snapshot.monitor.enabled);
  EXPECT_FALSE(snapshot.monitor.up);
  EXPECT_EQ(snapshot.monitor.error, "connection refused");
  EXPECT_EQ(snapshot.monitor.last_success, WallTime(seconds(5)));
}

TEST_F(ServerViewTest, WithoutAMonitorItIsNotEnabled) {
  EXPECT_FALSE(Show(0, 1'000, 1, Facts(10'000)).monitor.enabled);
}

using base::MonotonicTime;

MonotonicTime At(int second) { return MonotonicTime(seconds(second)); }

TEST(WalRateTest, NothingIsReportedBeforeAMinute) {
  WalRate rate;
  EXPECT_FALSE(rate.BytesPerSecond());
  rate.Add(At(0), Lsn(1'000));
  rate.Add(At(59), Lsn(2'000));
  EXPECT_FALSE(rate.BytesPerSecond());
  rate.Add(At(100), Lsn(3'000));
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 20);
}

TEST(WalRateTest, WhatIsOlderThanTheWindowNoLongerCounts) {
  WalRate rate;
  std::uint64_t position = 1'000;
  for (int second = 0; second <= 3'600; ++second) {
    rate.Add(At(second), Lsn(position));
    position += second < 1'700 ? 1'000 : 10;
  }
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 10);
}

TEST(WalRateTest, IdleServerHasTheRateZero) {
  WalRate rate;
  rate.Add(At(0), Lsn(1'000));
  rate.Add(At(300), Lsn(1'000));
  EXPECT_EQ(rate.BytesPerSecond().value(), 0);
}

TEST(WalRateTest, AnotherServerBeginsAnew) {
  WalRate rate;
  rate.Add(At(0), Lsn(1'000'000));
  rate.Add(At(100), Lsn(2'000'000));
  rate.Add(At(110), Lsn(500));
  EXPECT_FALSE(rate.BytesPerSecond());
  rate.Add(At(210), Lsn(1'500));
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 10);
}

TEST(WalRateTest, NoPositionIsNoPoint) {
  WalRate rate;
  rate.Add(At(0), Lsn());
  rate.Add(At(10), Lsn(1'000));
  rate.Add(At(110), Lsn(2'000));
  EXPECT_DOUBLE_EQ(rate.BytesPerSecond().value(), 10);
}

}  // namespace
}  // namespace walpost::runtime
