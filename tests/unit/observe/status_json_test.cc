#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "observe/http_server.h"
#include "unit/observe/sample.h"

namespace walpost::observe {
namespace {

using Json = nlohmann::json;

Json Status(const Snapshot& snapshot) { return Json::parse(RenderStatusJson(snapshot, "1.2.3")); }

TEST(StatusJsonTest, SaysWhoAndHow) {
  const Json status = Status(Sample());
  EXPECT_EQ(status.at("name"), "shop");
  EXPECT_EQ(status.at("version"), "1.2.3");
  EXPECT_EQ(status.at("state"), "streaming");
  EXPECT_EQ(status.at("state_since"), "2023-11-14T22:13:21.000000Z");
  EXPECT_EQ(status.at("taken_at"), "2023-11-14T22:13:22.000000Z");
  EXPECT_EQ(status.at("started_at"), "2023-11-14T22:13:23.000000Z");
  EXPECT_EQ(status.at("halt"), nullptr);
  EXPECT_EQ(status.at("gap_guard"), "off");
  EXPECT_EQ(status.at("last_error"), "lost");
  EXPECT_EQ(status.at("last_error_at"), "2023-11-14T22:13:24.000000Z");
}

TEST(StatusJsonTest, SaysWhereItStandsInTheSource) {
  const Json source = Status(Sample()).at("source");
  EXPECT_EQ(source.at("connected"), true);
  EXPECT_EQ(source.at("host"), "db:5432");
  EXPECT_EQ(source.at("database"), "shopdb");
  EXPECT_EQ(source.at("server_version"), 150'006);
  EXPECT_EQ(source.at("timeline"), 3);
  EXPECT_EQ(source.at("slot"), "shop_slot");
  EXPECT_EQ(source.at("publication"), "shop_pub");
  EXPECT_EQ(source.at("server_wal_lsn"), "0/500");
  EXPECT_EQ(source.at("received_lsn"), "0/300");
  EXPECT_EQ(source.at("safe_lsn"), "0/200");
  EXPECT_EQ(source.at("confirmed_lsn"), "0/100");
  EXPECT_EQ(source.at("lag_bytes"), 0x400);
  EXPECT_EQ(source.at("last_frame_at"), "2023-11-14T22:13:25.000000Z");
  EXPECT_EQ(source.at("last_error"), "lost");
  EXPECT_EQ(source.at("last_error_at"), "2023-11-14T22:13:24.000000Z");
}

// JavaScript, and so every browser, rounds a number of this size.
TEST(StatusJsonTest, SystemIdentifierIsText) {
  EXPECT_EQ(Status(Sample()).at("source").at("system_identifier"), "7300000000000000001");
}

TEST(StatusJsonTest, CountersAreThoseOfTheSnapshot) {
  const Json status = Status(Sample());
  EXPECT_EQ(status.at("events"), Json({{"received", 14},
                                       {"delivered", 15},
                                       {"in_flight", 24},
                                       {"dead_lettered", 16},
                                       {"parked", 17},
                                       {"parked_keys", 3},
                                       {"skipped", 18},
                                       {"discarded", 20},
                                       {"repeated", 19},
                                       {"last_delivered_at", "2023-11-14T22:13:27.000000Z"},
                                       {"by_table", {{"outbox.events", 9}, {"outbox.more", 5}}},
                                       {"by_topic", {{"orders", 15}}}}));
  EXPECT_EQ(status.at("in_flight"), Json({{"events", 24},
                                          {"bytes", 25},
                                          {"bytes_max", 26},
                                          {"oldest_commit_at", "2023-11-14T22:13:26.000000Z"}}));
  EXPECT_EQ(status.at("sink").at("producer_sessions"), 2);
  EXPECT_EQ(status.at("sink").at("records_resubmitted"), 23);
  EXPECT_EQ(status.at("sink").at("last_error"), "down");
  EXPECT_EQ(status.at("sink").at("last_error_at"), "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(status.at("delivery_delay_seconds"),
            Json({{"count", 3}, {"p50_at_most", 0.005}, {"p99_at_most", 600}}));
  EXPECT_EQ(status.at("transactions"), 11);
  EXPECT_EQ(status.at("changes_ignored"), 21);
  EXPECT_EQ(status.at("reconnects"), 22);
  EXPECT_EQ(status.at("backpressure_ms"), 2'500);
  EXPECT_GT(status.at("process").at("resident_bytes"), 0);
}

TEST(StatusJsonTest, BrokersAreListedOneByOne) {
  const Json sink = Status(Sample()).at("sink");
  EXPECT_EQ(sink.at("connected"), true);
  ASSERT_EQ(sink.at("brokers").size(), 2U);
  EXPECT_EQ(sink.at("brokers")[0], Json({{"address", "k1:9092"},
                                         {"up", true},
                                         {"queued_requests", 34},
                                         {"waiting_requests", 35},
                                         {"round_trip_p99_seconds", 0.25},
                                         {"throttle_max_seconds", 0.5},
                                         {"send_errors", 36},
                                         {"receive_errors", 37},
                                         {"retries", 38},
                                         {"timeouts", 39},
                                         {"disconnects", 40}}));
  EXPECT_EQ(sink.at("brokers")[1].at("up"), false);
}

TEST(StatusJsonTest, RoomAndMonitorAreThoseOfTheMetrics) {
  const Json status = Status(Sample());
  EXPECT_EQ(status.at("wal_room"), Json({{"limited", true},
                                         {"limit_bytes", 65'536},
                                         {"safe_bytes", 60'000},
                                         {"written_bytes_per_second", 10},
                                         {"seconds_left", 6'000}}));
  EXPECT_EQ(status.at("monitor"), Json({{"up", true},
                                        {"error", nullptr},
                                        {"last_success_at", "2023-11-14T22:13:28.000000Z"},
                                        {"in_recovery", false},
                                        {"slot",
                                         {{"active", true},
                                          {"wal_status", "extended"},
                                          {"invalidation_reason", nullptr},
                                          {"retained_bytes", 5'000},
                                          {"spilled_transactions", 31},
                                          {"spilled_bytes", 32},
                                          {"decoded_bytes", 33}}},
                                        {"partitions",
                                         {{{"table", "outbox.events"},
                                           {"count", 8},
                                           {"oldest_end", "2023-11-14T22:13:29.000000Z"},
                                           {"newest_end", "2023-11-14T22:13:30.000000Z"}}}}}));
}

TEST(StatusJsonTest, RoomWithoutLimitIsNotLimitedAndNoNumber) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  Snapshot snapshot = Sample();
  snapshot.wal_room = {kNoLimit, kNoLimit, 10.0, kNoLimit};
  EXPECT_EQ(Status(snapshot).at("wal_room"), Json({{"limited", false},
                                                   {"limit_bytes", nullptr},
                                                   {"safe_bytes", nullptr},
                                                   {"written_bytes_per_second", 10},
                                                   {"seconds_left", nullptr}}));
}

TEST(StatusJsonTest, MonitorThatFailsSaysWhyAndNoFigures) {
  Snapshot snapshot = Sample();
  snapshot.monitor.up = false;
  snapshot.monitor.error = "rejected";
  snapshot.monitor.figures.reset();
  const Json monitor = Status(snapshot).at("monitor");
  EXPECT_EQ(monitor.at("up"), false);
  EXPECT_EQ(monitor.at("error"), "rejected");
  EXPECT_EQ(monitor.at("slot"), nullptr);
  EXPECT_EQ(monitor.at("in_recovery"), nullptr);
}

TEST(StatusJsonTest, LastEventsAreListedNewestFirst) {
  const Json events = Status(Sample()).at("last_events");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0], Json({{"id", "e2"},
                             {"type", "OrderPaid"},
                             {"topic", "orders"},
                             {"partition", 1},
                             {"offset", 42},
                             {"commit_lsn", "0/180"},
                             {"committed_at", "2023-11-14T22:13:21.000000Z"},
                             {"delivered_at", "2023-11-14T22:13:23.000000Z"},
                             {"delay_seconds", 2.0}}));
  // What is not known is null, and a clock that is behind makes no negative delay.
  for (const char* name : {"id", "type", "partition", "offset"}) {
    EXPECT_EQ(events[1].at(name), nullptr) << name;
  }
  EXPECT_EQ(events[1].at("delay_seconds"), 0.0);
}

TEST(StatusJsonTest, WhatHasNotHappenedIsNull) {
  const Json status = Status(Snapshot());
  EXPECT_EQ(status.at("last_error"), nullptr);
  EXPECT_EQ(status.at("last_error_at"), nullptr);
  EXPECT_EQ(status.at("state_since"), nullptr);
  for (const char* name :
       {"host", "database", "server_version", "system_identifier", "timeline", "confirmed_lsn"}) {
    EXPECT_EQ(status.at("source").at(name), nullptr) << name;
  }
  EXPECT_EQ(status.at("wal_room").at("limited"), nullptr);
  EXPECT_EQ(status.at("monitor"), nullptr);
  EXPECT_EQ(status.at("sink").at("brokers"), Json::array());
  EXPECT_EQ(status.at("last_events"), Json::array());
  EXPECT_EQ(status.at("source").at("last_frame_at"), nullptr);
  EXPECT_EQ(status.at("source").at("lag_bytes"), 0);
  EXPECT_EQ(status.at("in_flight").at("oldest_commit_at"), nullptr);
  EXPECT_EQ(status.at("events").at("by_table"), Json::object());
}

TEST(StatusJsonTest, HaltNamesReasonAndDetail) {
  Snapshot snapshot = Sample();
  snapshot.state = base::State::kHalted;
  snapshot.halt_reason = base::HaltReason::kTableReplaced;
  snapshot.halt_detail = "table \"outbox\".\"events\" was replaced: do this";
  const Json status = Status(snapshot);
  EXPECT_EQ(status.at("state"), "halted");
  EXPECT_EQ(status.at("halt"),
            Json({{"reason", "table_replaced"},
                  {"detail", "table \"outbox\".\"events\" was replaced: do this"}}));
}

TEST(StatusJsonTest, TextThatIsNotUtf8IsStillJson) {
  Snapshot snapshot = Sample();
  snapshot.last_error.text = "bad \xff byte";
  EXPECT_EQ(Status(snapshot).at("last_error"), "bad \xef\xbf\xbd byte");
}

}  // namespace
}  // namespace walpost::observe
