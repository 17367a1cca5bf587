#include "pipeline/counters.h"

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

TEST(FailedEventsTest, AreCountedByTopicAndReason) {
  FailedEvents failed;
  failed.Add("orders", "topic_unknown");
  failed.Add("orders", "record_too_large");
  failed.Add("orders", "topic_unknown");
  ASSERT_EQ(failed.rows.size(), 2U);
  EXPECT_EQ(failed.rows[0].count, 2U);
  EXPECT_EQ(failed.rows[1].reason, "record_too_large");
}

// A row's text must not become a label, whatever bytes it has.
TEST(FailedEventsTest, NameThatIsNoTopicIsNotShown) {
  FailedEvents failed;
  for (const std::string& topic :
       {std::string(), std::string("no such topic"), std::string("\xff"), std::string(250, 'a')}) {
    failed.Add(topic, "topic_invalid");
  }
  ASSERT_EQ(failed.rows.size(), 1U);
  EXPECT_EQ(failed.rows[0].topic, "(none)");
  EXPECT_EQ(failed.rows[0].count, 4U);
}

TEST(FailedEventsTest, TopicsBeyondTheLimitShareARow) {
  FailedEvents failed;
  for (std::size_t i = 0; i < FailedEvents::kRowsMax + 10; ++i) {
    failed.Add("topic-" + std::to_string(i), "topic_unknown");
  }
  ASSERT_EQ(failed.rows.size(), FailedEvents::kRowsMax + 1);
  EXPECT_EQ(failed.rows.back().topic, "(other)");
  EXPECT_EQ(failed.rows.back().count, 10U);
}

TEST(DeliveredEventsTest, TopicsHaveRowsUpToABoundAndShareOneBeyond) {
  DeliveredEvents delivered;
  for (int i = 0; i < 1'100; ++i) {
    delivered.Add("topic" + std::to_string(i));
  }
  delivered.Add("topic7");
  delivered.Add("topic7");
  ASSERT_EQ(delivered.rows().size(), 1'001U);
  EXPECT_EQ(delivered.rows()[0], std::make_pair(std::string("(other)"), std::uint64_t{100}));
  EXPECT_EQ(delivered.rows()[8], std::make_pair(std::string("topic7"), std::uint64_t{3}));
  EXPECT_EQ(delivered.rows()[1'000], std::make_pair(std::string("topic999"), std::uint64_t{1}));
}

TEST(DeliveredEventsTest, BeforeTheFirstThenOnlyTheSharedRowIsThere) {
  EXPECT_EQ(DeliveredEvents().rows(), DeliveredEvents::Rows({{"(other)", 0}}));
}

// Alerts are written with these: docs/metrics.md, walpost_reconnects_total.
TEST(ReconnectReasonTest, NamesAreThoseOfTheMetrics) {
  std::vector<std::string_view> names;
  for (const ReconnectReason reason : kAllReconnectReasons) {
    names.push_back(ReconnectReasonName(reason));
  }
  EXPECT_THAT(names, ::testing::ElementsAre("connect_failed", "login_rejected", "slot_in_use",
                                            "lost", "server_error", "server_stopping", "taken_over",
                                            "planned", "promoted"));
}

TEST(ReconnectReasonTest, EachEndHasItsReason) {
  using Kind = base::StreamEnd::Kind;
  const auto of = [](Kind kind, bool connecting) {
    base::StreamEnd end;
    end.kind = kind;
    return ReconnectReasonOf(end, connecting);
  };
  for (const bool connecting : {true, false}) {
    EXPECT_EQ(of(Kind::kSlotInUse, connecting), ReconnectReason::kSlotInUse);
    EXPECT_EQ(of(Kind::kOperator, connecting), ReconnectReason::kLoginRejected);
    EXPECT_EQ(of(Kind::kFinished, connecting), ReconnectReason::kServerStopping);
    EXPECT_EQ(of(Kind::kServerError, connecting), ReconnectReason::kServerError);
  }
  EXPECT_EQ(of(Kind::kLost, true), ReconnectReason::kConnectFailed);
  EXPECT_EQ(of(Kind::kLost, false), ReconnectReason::kLost);
}

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

class StageTimesTest : public ::testing::Test {
 protected:
  void Advance(milliseconds time) {
    now_.mono += time;
    now_.wall += time;
  }

  void Take() { times_.OnTaken(now_.wall - milliseconds(70), now_); }

  const StageHistograms& stages() const { return counters_.stages; }

  base::Now now_{base::MonotonicTime(std::chrono::hours(1)),
                 base::WallTime(std::chrono::seconds(1'700'000'000))};
  Counters counters_;
  StageTimes times_{&counters_};
};

TEST_F(StageTimesTest, EachStageIsSampledOnceForABatch) {
  EXPECT_TRUE(times_.wants_event());
  Take();
  EXPECT_FALSE(times_.wants_event()) << "the others of the batch waited less";
  Advance(milliseconds(3));
  times_.OnSubmitted(100, 100, now_);
  Advance(milliseconds(40));
  times_.OnSettled(99, now_);
  EXPECT_EQ(stages().produce.Total(), 0U) << "one of them is not acknowledged";
  times_.OnSettled(100, now_);
  EXPECT_EQ(stages().source.Total(), 1U);
  EXPECT_NEAR(stages().source.sum_seconds, 0.070, 1e-9);
  EXPECT_EQ(stages().queue.Total(), 1U);
  EXPECT_NEAR(stages().queue.sum_seconds, 0.003, 1e-9);
  EXPECT_EQ(stages().produce.Total(), 1U);
  EXPECT_NEAR(stages().produce.sum_seconds, 0.040, 1e-9);
  EXPECT_TRUE(times_.wants_event());
}

TEST_F(StageTimesTest, WhatGoesOutInTheSameMomentIsOneBatch) {
  Take();
  for (delivery::Sequence cursor = 1; cursor <= 5; ++cursor) {
    times_.OnSubmitted(cursor, 5, now_);
  }
  Advance(milliseconds(10));
  times_.OnSettled(5, now_);
  EXPECT_EQ(stages().queue.Total(), 1U);
  EXPECT_EQ(stages().produce.Total(), 1U);
}

TEST_F(StageTimesTest, EventThatHadToWaitIsCountedWithItsWholeWait) {
  Take();
  times_.OnSubmitted(1, 3, now_);
  Advance(milliseconds(500));
  times_.OnSubmitted(3, 3, now_);
  EXPECT_EQ(stages().queue.Total(), 2U);
  EXPECT_NEAR(stages().queue.sum_seconds, 0.5, 1e-9);
}

TEST_F(StageTimesTest, ResubmissionBelongsToTheFirstTry) {
  Take();
  times_.OnSubmitted(2, 2, now_);
  Advance(milliseconds(900));
  times_.OnSubmitted(1, 2, now_);
  times_.OnSubmitted(2, 2, now_);
  Advance(milliseconds(100));
  times_.OnSettled(2, now_);
  EXPECT_EQ(stages().produce.Total(), 1U);
  EXPECT_NEAR(stages().produce.sum_seconds, 1.0, 1e-9);
}

TEST_F(StageTimesTest, WhatIsGivenUpIsNotAcknowledged) {
  Take();
  times_.OnSubmitted(2, 2, now_);
  times_.Forget();
  times_.OnSettled(2, now_);
  EXPECT_EQ(stages().produce.Total(), 0U);
  EXPECT_TRUE(times_.wants_event());
}

}  // namespace
}  // namespace walpost::pipeline
