#include "observe/snapshot.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unit/observe/sample.h"

namespace walpost::observe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Snapshot At(std::chrono::microseconds time) {
  Snapshot snapshot;
  snapshot.taken_at = base::WallTime(time);
  return snapshot;
}

TEST(HistoryTest, PointsAreAsFarApartAsTheyShall) {
  History history;
  for (int s = 0; s < 60; ++s) {
    history.Add(At(seconds(1'000 + s)));
  }
  ASSERT_EQ(history.points().size(), 4U);
  EXPECT_EQ(history.points()[0].at, base::WallTime(seconds(1'000)));
  EXPECT_EQ(history.points()[3].at, base::WallTime(seconds(1'045)));
}

TEST(HistoryTest, OnlyTheLastHourIsKept) {
  History history;
  for (int i = 0; i < 1'000; ++i) {
    history.Add(At(i * History::kEvery + seconds(1)));
  }
  ASSERT_EQ(history.points().size(), History::kPoints);
  EXPECT_EQ(history.points().back().at, base::WallTime(999 * History::kEvery + seconds(1)));
  EXPECT_EQ(History::kPoints * History::kEvery, std::chrono::hours(1));
}

TEST(HistoryTest, ClockThatWasSetBackDoesNotStopIt) {
  History history;
  for (int s : {1'000, 900, 901, 915}) {
    history.Add(At(seconds(s)));
  }
  ASSERT_EQ(history.points().size(), 3U);
  EXPECT_EQ(history.points().back().at, base::WallTime(seconds(915)));
}

TEST(HistoryTest, JsonHasAnArrayForEachField) {
  Snapshot snapshot = At(seconds(1'000));
  snapshot.counters.events_delivered = 7;
  snapshot.in_flight_events = 3;
  snapshot.confirmed_lsn = base::Lsn(100);
  snapshot.server_wal_lsn = base::Lsn(150);
  snapshot.oldest_undelivered_commit = base::WallTime(milliseconds(997'500));
  History history;
  history.Add(snapshot);
  const auto json = nlohmann::json::parse(RenderHistoryJson(history.points()));
  EXPECT_EQ(json, nlohmann::json::parse(R"({"at_ms": [1000000], "delivered": [7], "lag_bytes": [50],
      "in_flight_events": [3], "oldest_age_ms": [2500]})"));
}

TEST(HistoryTest, JsonOfNoneIsEmptyArrays) {
  EXPECT_EQ(nlohmann::json::parse(RenderHistoryJson({}))["at_ms"], nlohmann::json::array());
}

class RenderedTest : public ::testing::Test {
 protected:
  std::atomic<int> times_ = 0;
  Rendered rendered_{
      [this](const Snapshot& snapshot) { return snapshot.name + std::to_string(++times_); }};
  base::MonotonicTime now_{std::chrono::hours(1)};
};

TEST_F(RenderedTest, SameSnapshotIsRenderedOnceHoweverManyAsk) {
  const auto snapshot = std::make_shared<const Snapshot>(Sample());
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        EXPECT_EQ(rendered_.Of(snapshot, now_), "shop1");
      }
    });
  }
  for (std::thread& asker : askers) {
    asker.join();
  }
  EXPECT_EQ(times_, 1);
}

TEST_F(RenderedTest, NextSnapshotIsRenderedAnew) {
  EXPECT_EQ(rendered_.Of(std::make_shared<const Snapshot>(Sample()), now_), "shop1");
  EXPECT_EQ(rendered_.Of(std::make_shared<const Snapshot>(Sample()), now_), "shop2");
}

TEST_F(RenderedTest, NothingIsOlderThanASecondAlsoWithoutASnapshot) {
  EXPECT_EQ(rendered_.Of(nullptr, now_), "1");
  EXPECT_EQ(rendered_.Of(nullptr, now_ + Rendered::kYoungerThan - milliseconds(1)), "1");
  EXPECT_EQ(rendered_.Of(nullptr, now_ + Rendered::kYoungerThan), "2");
}

}  // namespace
}  // namespace walpost::observe
