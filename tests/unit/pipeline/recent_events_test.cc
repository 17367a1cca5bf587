#include "pipeline/recent_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace walpost::pipeline {
namespace {

using base::DeliveredEvent;
using base::MonotonicTime;
using base::WallTime;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

WallTime Wall(int seconds) { return WallTime(std::chrono::seconds(seconds)); }

class RecentEventsTest : public ::testing::Test {
 protected:
  void SetUp() override { recent_.Tick(now_); }

  // `count` events in flight, all of which are delivered, one after the other.
  void Deliver(int count) {
    for (int i = 0; i < count; ++i) {
      Track("event " + std::to_string(next_++));
    }
    while (!tracker_.empty()) {
      const delivery::Sequence sequence = tracker_.oldest_unsettled();
      if (recent_.Wants(tracker_)) {
        recent_.Note(tracker_.entry(sequence), {3, static_cast<std::int64_t>(sequence)}, Wall(20));
      }
      tracker_.Settle(sequence);
    }
  }

  std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (const DeliveredEvent& event : recent_.NewestFirst()) {
      ids.push_back(event.id);
    }
    return ids;
  }

  void Track(const std::string& id, bool with_headers = true) {
    constexpr std::string_view kType = "OrderPlaced";
    envelope::Record record;
    record.block = tracker_.arena()->Allocate(id.size() + kType.size());
    char* const begin = record.block.data;
    id.copy(begin, id.size());
    kType.copy(begin + id.size(), kType.size());
    headers_.push_back({envelope::RecordHeader{"id", {begin, id.size()}},
                        envelope::RecordHeader{"type", {begin + id.size(), kType.size()}}});
    if (with_headers) {
      record.headers = headers_.back();
    }
    record.topic = "orders";
    tracker_.BeginTransaction(base::Lsn(lsn_ += 100));
    tracker_.Add(record, 0, Wall(10));
    tracker_.CommitTransaction(base::Lsn(lsn_ + 8));
  }

  RecentEvents recent_;
  delivery::Tracker tracker_;
  MonotonicTime now_{std::chrono::hours(1)};
  std::deque<std::vector<envelope::RecordHeader>> headers_;
  std::uint64_t lsn_ = 0;
  int next_ = 0;
};

TEST_F(RecentEventsTest, NothingIsThereBeforeTheFirst) { EXPECT_THAT(Ids(), IsEmpty()); }

TEST_F(RecentEventsTest, EventIsShownWithoutPayloadAndKey) {
  Deliver(1);
  const std::vector<DeliveredEvent> events = recent_.NewestFirst();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].id, "event 0");
  EXPECT_EQ(events[0].type, "OrderPlaced");
  EXPECT_EQ(events[0].topic, "orders");
  EXPECT_EQ(events[0].partition, 3);
  EXPECT_EQ(events[0].offset, 0);
  EXPECT_EQ(events[0].commit_lsn, base::Lsn(100));
  EXPECT_EQ(events[0].committed_at, Wall(10));
  EXPECT_EQ(events[0].delivered_at, Wall(20));
}

TEST_F(RecentEventsTest, FewAreAllThereNewestFirst) {
  Deliver(3);
  EXPECT_THAT(Ids(), ElementsAre("event 2", "event 1", "event 0"));
}

TEST_F(RecentEventsTest, OfManyTheFirstOfAWindowAndTheLastBeforeSilence) {
  Deliver(1'000);
  const std::vector<std::string> ids = Ids();
  ASSERT_THAT(ids, SizeIs(RecentEvents::kKept));
  EXPECT_EQ(ids[0], "event 999");
  EXPECT_EQ(ids[1], "event 19");
  EXPECT_EQ(ids.back(), "event 1");
}

TEST_F(RecentEventsTest, NextWindowHasRoomAgain) {
  Deliver(1'000);
  recent_.Tick(now_ + RecentEvents::kWindow - milliseconds(1));
  Deliver(1'000);
  EXPECT_EQ(Ids()[1], "event 999");
  recent_.Tick(now_ + RecentEvents::kWindow);
  Deliver(1'000);
  EXPECT_EQ(Ids()[0], "event 2999");
  EXPECT_EQ(Ids()[1], "event 2019");
}

TEST_F(RecentEventsTest, RecordWithoutHeadersAndLongTextsAreTaken) {
  Track("none", /*with_headers=*/false);
  recent_.Note(tracker_.entry(0), {}, Wall(20));
  Track(std::string(1'000, 'x'));
  recent_.Note(tracker_.entry(1), {}, Wall(20));
  EXPECT_THAT(Ids(), ElementsAre(std::string(RecentEvents::kTextMax, 'x'), ""));
}

}  // namespace
}  // namespace walpost::pipeline
