#include "observe/history.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "observe/snapshot.h"

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

}  // namespace
}  // namespace walpost::observe
