#include "pipeline/counters.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace walpost::pipeline
