// Whether two outboxes may meet in a topic.
#include "outbox/topic_reach.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace walpost::outbox {
namespace {

TopicReach Reach(const std::string& topic, std::vector<std::string> allowed = {}) {
  TableOptions options;
  options.topic = topic;
  options.topics.allowed = std::move(allowed);
  return TopicReach(options);
}

TEST(PatternsMeetTest, SomeTextMatchesBoth) {
  for (const auto& [one, other] :
       {std::pair{"order", "order"}, std::pair{"order", "*"}, std::pair{"*", "*"},
        std::pair{"shop.*", "*.order"}, std::pair{"a*c", "ab*"}, std::pair{"a*", "**a"},
        std::pair{"*a*b", "a*"}, std::pair{"", "*"}}) {
    EXPECT_TRUE(PatternsMeet(one, other)) << one << " " << other;
    EXPECT_TRUE(PatternsMeet(other, one)) << one << " " << other;
  }
}

TEST(PatternsMeetTest, NoTextMatchesBoth) {
  for (const auto& [one, other] :
       {std::pair{"order", "orders"}, std::pair{"shop.*", "crm.*"}, std::pair{"*.a", "*.b"},
        std::pair{"a*c", "ab"}, std::pair{"", "a*"}, std::pair{"a*a", "a"}}) {
    EXPECT_FALSE(PatternsMeet(one, other)) << one << " " << other;
    EXPECT_FALSE(PatternsMeet(other, one)) << one << " " << other;
  }
}

TEST(TopicReachTest, TemplatesThatGiveTheSameTopicMeet) {
  EXPECT_TRUE(Reach("{aggregate_type}").Meets(Reach("orders")));
  EXPECT_TRUE(Reach("shop.{aggregate_type}").Meets(Reach("{type}.order")));
  EXPECT_FALSE(Reach("shop.{aggregate_type}").Meets(Reach("crm.{aggregate_type}")));
}

TEST(TopicReachTest, TemplateAndListOfAllowedTopicsBothBoundIt) {
  const TopicReach orders = Reach("{aggregate_type}", {"orders", "shop.*"});
  EXPECT_TRUE(orders.Holds("orders"));
  EXPECT_TRUE(orders.Holds("shop.carts"));
  EXPECT_FALSE(orders.Holds("carts"));
  EXPECT_FALSE(orders.Meets(Reach("{aggregate_type}", {"carts"})));
  EXPECT_FALSE(Reach("a.{aggregate_type}", {"*"}).Meets(Reach("b.{aggregate_type}", {"*"})));
}

TEST(TopicReachTest, TopicOfAnAggregateTypeCounts) {
  TableOptions options;
  options.topic = "a.{aggregate_type}";
  options.topics.by_aggregate_type = {{"cart", "carts"}};
  EXPECT_TRUE(TopicReach(options).Meets(Reach("carts")));
  EXPECT_FALSE(TopicReach(options).Meets(Reach("orders")));
  options.topics.allowed = {"*"};
  EXPECT_TRUE(TopicReach(options).Meets(Reach("carts")));
  EXPECT_FALSE(TopicReach(options).Meets(Reach("orders")));
}

TEST(TopicReachTest, RowThatNamesItsTopicIsBoundByTheListOnly) {
  TableOptions options;
  options.topic = "a.{aggregate_type}";
  options.columns.topic = {"topic"};
  options.topics.allowed = {"orders"};
  EXPECT_TRUE(TopicReach(options).Holds("orders"));
  // Debezium leaves what its regex does not match as it is.
  options.columns.topic.clear();
  EXPECT_FALSE(TopicReach(options).Holds("orders"));
  options.debezium.emplace();
  EXPECT_TRUE(TopicReach(options).Holds("orders"));
}

}  // namespace
}  // namespace walpost::outbox
