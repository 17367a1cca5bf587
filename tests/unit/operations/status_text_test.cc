#include "operations/status/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "observe/http_server.h"

namespace walpost::operations {
namespace {

using nlohmann::json;
using observe::Snapshot;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Level = Judgement::Level;

constexpr base::WallTime kTakenAt{std::chrono::microseconds(1'700'000'000'000'000)};

// As /status writes it, so that both stay in step.
class StatusTextTest : public ::testing::Test {
 protected:
  StatusTextTest() {
    snapshot_.name = "shop";
    snapshot_.slot = "shop_slot";
    snapshot_.state = base::State::kStreaming;
    snapshot_.state_since = kTakenAt - seconds(3700);
    snapshot_.taken_at = kTakenAt;
    snapshot_.started_at = kTakenAt - seconds(4000);
    snapshot_.gap_guard = "on";
    snapshot_.source_connected = true;
    snapshot_.sink_connected = true;
    snapshot_.server_version = 150'018;
    snapshot_.confirmed_lsn = base::Lsn(0x1000);
    snapshot_.server_wal_lsn = base::Lsn(0x1000);
  }

  json Status() const { return json::parse(observe::RenderStatusJson(snapshot_, "1.2.3")); }

  std::string Text(bool live = true) const { return StatusAsText(Status(), live); }

  Judgement Judged(bool live = true) const { return JudgeStatus(Status(), live, Thresholds()); }

  void Halt() {
    snapshot_.state = base::State::kHalted;
    snapshot_.halt_reason = base::HaltReason::kSlotMoved;
    snapshot_.halt_detail = "slot moved; do this";
  }

  Snapshot snapshot_;
};

TEST_F(StatusTextTest, StreamingSaysSoAndThatThereIsNothingToDo) {
  EXPECT_THAT(Text(), StartsWith("shop: streaming, since 2023-11-14T21:11:40"));
  EXPECT_THAT(Text(), HasSubstr("1 h 1 min ago\n"));
  EXPECT_THAT(Text(), HasSubstr("slot shop_slot"));
  EXPECT_THAT(Text(), HasSubstr("PostgreSQL 15.18"));
  EXPECT_THAT(Text(), HasSubstr("lag           0 B; no event waits\n"));
  EXPECT_THAT(Text(), HasSubstr("last event    never\n"));
  EXPECT_THAT(Text(), HasSubstr("to do         nothing\n"));
  EXPECT_THAT(Text(), Not(HasSubstr("last error")));
  EXPECT_EQ(Judged().level, Level::kOk);
  EXPECT_EQ(Judged().why, "streaming");
}

TEST_F(StatusTextTest, WhatNoConnectionHasReportedYetIsLeftOut) {
  snapshot_.source_connected = false;
  snapshot_.server_version = 0;
  snapshot_.publication = "shop_pub";
  EXPECT_THAT(Text(),
              HasSubstr("source        not connected: slot shop_slot, publication shop_pub\n"));
  EXPECT_THAT(Text(), Not(HasSubstr("PostgreSQL 0.0")));
  // Once known it stays, since it says where to look.
  snapshot_.server_version = 150'018;
  snapshot_.source_host = "db:5432";
  snapshot_.database = "shop";
  EXPECT_THAT(Text(), HasSubstr("source        not connected: db:5432, database shop, PostgreSQL "
                                "15.18, slot shop_slot, publication shop_pub\n"));
}

TEST_F(StatusTextTest, BrokersThatAreAwayAreNamed) {
  snapshot_.brokers.resize(3);
  for (base::BrokerFigures& broker : snapshot_.brokers) {
    broker.up = true;
    broker.address = "k" + std::to_string(&broker - snapshot_.brokers.data()) + ":9092";
  }
  EXPECT_THAT(Text(), HasSubstr("kafka         connected\n"));
  snapshot_.brokers[0].up = snapshot_.brokers[2].up = false;
  EXPECT_THAT(Text(), HasSubstr("kafka         connected; no connection to k0:9092, k2:9092\n"));
}

TEST_F(StatusTextTest, ForeignTextIsPrintable) {
  snapshot_.state = base::State::kHalted;
  snapshot_.halt_detail = "event '\x1b[2J\n  next          all is well'";
  EXPECT_THAT(Text(), HasSubstr("event '\\x1b[2J\\x0a  next "));
}

TEST_F(StatusTextTest, RoomForTheSlotIsShownAsFarAsItIsKnown) {
  EXPECT_THAT(Text(), Not(HasSubstr("  room ")));
  snapshot_.wal_room.limit_bytes = 64.0 * 1024 * 1024;
  EXPECT_THAT(Text(), Not(HasSubstr("  room ")));
  snapshot_.wal_room.safe_bytes = 32.0 * 1024 * 1024;
  EXPECT_THAT(Text(), HasSubstr("room          32.0 MiB of WAL until the slot may be lost\n"));
  snapshot_.wal_room.bytes_per_second = 1024.0;
  snapshot_.wal_room.seconds_left = 32'768.0;
  EXPECT_THAT(Text(), HasSubstr("be lost; at 1.0 KiB a second in 9 h 6 min\n"));
  snapshot_.wal_room.seconds_left = 1e18;
  EXPECT_THAT(Text(), HasSubstr(" a second in 36500 d 0 h\n"));
  snapshot_.wal_room.seconds_left = std::numeric_limits<double>::infinity();
  EXPECT_THAT(Text(), HasSubstr("until the slot may be lost\n"));
  snapshot_.wal_room.limit_bytes = std::numeric_limits<double>::infinity();
  EXPECT_THAT(Text(), HasSubstr("room          without a limit"));
}

TEST_F(StatusTextTest, MonitorShowsTheSlotOrWhyItDoesNot) {
  EXPECT_THAT(Text(), Not(HasSubstr("\n  slot ")));
  snapshot_.monitor.enabled = true;
  snapshot_.monitor.error = "connection refused";
  EXPECT_THAT(Text(), HasSubstr("slot          no answer: connection refused\n"));
  snapshot_.monitor.up = true;
  snapshot_.monitor.figures.emplace();
  EXPECT_THAT(Text(), HasSubstr("slot          there is no such slot\n"));
  snapshot_.monitor.figures->in_recovery = true;
  EXPECT_THAT(Text(), HasSubstr("slot          a standby, which does not see the slot\n"));
  snapshot_.monitor.figures->slot = base::SlotFigures{};
  snapshot_.monitor.figures->slot->wal_status = "extended";
  snapshot_.monitor.figures->slot->retained_bytes = 3 * 1024;
  EXPECT_THAT(Text(), HasSubstr("slot          extended, keeps 3.0 KiB of WAL\n"));
}

TEST_F(StatusTextTest, HaltedNamesTheReasonTheWayOutAndTheSectionOfTheRunbook) {
  Halt();
  EXPECT_THAT(Text(), StartsWith("shop: halted (slot_moved), since "));
  EXPECT_THAT(Text(), HasSubstr("because       slot moved; do this\n"));
  EXPECT_THAT(Text(), HasSubstr("to do         docs/runbook.md, section slot_moved\n"));
  EXPECT_EQ(Judged().level, Level::kCritical);
  EXPECT_EQ(Judged().why, "halted: slot_moved");
}

TEST_F(StatusTextTest, EveryStateSaysWhatThereIsToDo) {
  for (const base::State state : base::kAllStates) {
    snapshot_.state = state;
    const std::string text = Text();
    EXPECT_THAT(text, HasSubstr("\n  to do         ")) << text;
    if (state != base::State::kStreaming) {
      EXPECT_THAT(text, Not(HasSubstr("to do         nothing\n"))) << text;
    }
  }
}

TEST_F(StatusTextTest, HangingLoopIsCriticalWhateverItsLastStateWas) {
  EXPECT_THAT(Text(false), HasSubstr("restart the process, it hangs"));
  EXPECT_THAT(Text(false), HasSubstr("figures are of 2023-11-14T22:13:20"));
  EXPECT_EQ(Judged(false).level, Level::kCritical);
}

TEST_F(StatusTextTest, OldestEventInFlightWarnsAndThenIsCritical) {
  snapshot_.in_flight_events = 3;
  snapshot_.oldest_undelivered_commit = kTakenAt - milliseconds(119'999);
  EXPECT_THAT(Text(), HasSubstr("the oldest event waits since 1 min 59 s\n"));
  EXPECT_EQ(Judged().level, Level::kOk);
  snapshot_.oldest_undelivered_commit = kTakenAt - seconds(120);
  EXPECT_EQ(Judged().level, Level::kWarning);
  EXPECT_THAT(Judged().why, HasSubstr("Kafka has not taken an event since 2 min 0 s"));
  snapshot_.oldest_undelivered_commit = kTakenAt - seconds(300);
  EXPECT_EQ(Judged().level, Level::kCritical);
}

TEST_F(StatusTextTest, UnconfirmedWalWarnsAndThenIsCritical) {
  snapshot_.server_wal_lsn = base::Lsn(0x1000 + 1'999'999'999ULL);
  EXPECT_EQ(Judged().level, Level::kOk);
  snapshot_.server_wal_lsn = base::Lsn(0x1000 + 2'000'000'000ULL);
  EXPECT_EQ(Judged().level, Level::kWarning);
  EXPECT_THAT(Text(), HasSubstr("lag           1.9 GiB; "));
  snapshot_.server_wal_lsn = base::Lsn(0x1000 + 10'000'000'000ULL);
  EXPECT_EQ(Judged().level, Level::kCritical);
}

TEST_F(StatusTextTest, NotStreamingIsAMatterOfTimeExceptOnStandby) {
  for (const base::State state : {base::State::kStarting, base::State::kReconnecting}) {
    snapshot_.state = state;
    snapshot_.state_since = kTakenAt - seconds(119);
    EXPECT_EQ(Judged().level, Level::kOk);
    snapshot_.state_since = kTakenAt - seconds(120);
    EXPECT_EQ(Judged().level, Level::kWarning);
    snapshot_.state_since = kTakenAt - seconds(300);
    EXPECT_EQ(Judged().level, Level::kCritical);
  }
  snapshot_.state = base::State::kStandby;
  snapshot_.state_since = kTakenAt - seconds(999'999);
  EXPECT_EQ(Judged().level, Level::kOk);
}

TEST_F(StatusTextTest, ParkedKeysWarnAndAreNamedWithTheirVerb) {
  snapshot_.parked_keys = 2;
  EXPECT_EQ(Judged().level, Level::kWarning);
  EXPECT_EQ(Judged().why, "2 parked keys");
  EXPECT_THAT(Text(), HasSubstr("`walpost dlq list`"));
}

TEST_F(StatusTextTest, PluginsLineHasHealthAndFigures) {
  snapshot_.in_flight_events = 3;
  snapshot_.oldest_undelivered_commit = kTakenAt - milliseconds(1500);
  EXPECT_EQ(PluginLine(Judged(), Status()),
            "WALPOST OK: streaming | lag=0B in_flight=3 wait=1.5s parked_keys=0\n");
  EXPECT_EQ(PluginLine({Level::kUnknown, "why"}, json()), "WALPOST UNKNOWN: why\n");
}

// Of an older or a newer walpost.
TEST_F(StatusTextTest, WhatIsNotThereIsShownAsNothing) {
  const json status = {{"state", "streaming"}, {"source", 7}};
  EXPECT_THAT(StatusAsText(status, true), StartsWith("-: streaming, since never\n"));
  EXPECT_EQ(JudgeStatus(status, true, Thresholds()).level, Level::kOk);
}

TEST(SlotTextTest, SaysWhoReadsItAndWhatItKeeps) {
  postgres::SlotInfo slot;
  slot.confirmed_flush_lsn = base::Lsn(0x100);
  slot.wal_status = "extended";
  slot.retained_bytes = 3 * 1024 * 1024;
  EXPECT_EQ(JudgeSlot(slot).level, Level::kCritical);
  EXPECT_THAT(SlotAsText("s", slot), HasSubstr("s, read by nobody, confirmed 0/100\n"));
  EXPECT_THAT(SlotAsText("s", slot), HasSubstr("3.0 MiB of WAL (extended), without a limit"));
  EXPECT_THAT(SlotAsText("s", slot), HasSubstr("systemctl start walpost"));
  slot.active = true;
  slot.active_pid = 77;
  slot.safe_wal_size = 1024;
  EXPECT_EQ(JudgeSlot(slot).level, Level::kUnknown);
  EXPECT_THAT(SlotAsText("s", slot), HasSubstr("read by PID 77"));
  EXPECT_THAT(SlotAsText("s", slot), HasSubstr("lost after 1.0 KiB more"));
  slot.wal_status = "lost";
  EXPECT_EQ(JudgeSlot(slot).level, Level::kCritical);
  EXPECT_THAT(SlotAsText("s", slot), HasSubstr("section slot_invalidated"));
  EXPECT_THAT(SlotAsText("s", std::nullopt), HasSubstr("section slot_missing"));
  EXPECT_EQ(JudgeSlot(std::nullopt).level, Level::kCritical);
}

TEST(WordsTest, SizesAndDurationsAreShort) {
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(std::uint64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(BytesText(std::uint64_t{5} << 52), "20480.0 TiB");
  EXPECT_EQ(DurationText(milliseconds(3210)), "3.2 s");
  EXPECT_EQ(DurationText(seconds(61)), "1 min 1 s");
  EXPECT_EQ(DurationText(seconds(3600 * 25)), "1 d 1 h");
}

}  // namespace
}  // namespace walpost::operations
