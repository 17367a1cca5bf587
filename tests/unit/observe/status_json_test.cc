#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(status.at("sink"),
            Json({{"connected", true}, {"producer_generations", 2}, {"records_resubmitted", 23}}));
  EXPECT_EQ(status.at("delivery_delay_seconds"),
            Json({{"count", 3}, {"p50_at_most", 0.005}, {"p99_at_most", 600}}));
  EXPECT_EQ(status.at("transactions"), 11);
  EXPECT_EQ(status.at("changes_ignored"), 21);
  EXPECT_EQ(status.at("reconnects"), 22);
  EXPECT_EQ(status.at("backpressure_ms"), 2'500);
  EXPECT_GT(status.at("process").at("resident_bytes"), 0);
}

TEST(StatusJsonTest, WhatHasNotHappenedIsNull) {
  const Json status = Status(Snapshot());
  EXPECT_EQ(status.at("last_error"), nullptr);
  EXPECT_EQ(status.at("last_error_at"), nullptr);
  EXPECT_EQ(status.at("state_since"), nullptr);
  EXPECT_EQ(status.at("source").at("confirmed_lsn"), nullptr);
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
  snapshot.last_error = "bad \xff byte";
  EXPECT_EQ(Status(snapshot).at("last_error"), "bad \xef\xbf\xbd byte");
}

}  // namespace
}  // namespace walpost::observe
