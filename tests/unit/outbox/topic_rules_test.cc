// Where events may go: the same rule for rows and for messages.
#include "outbox/topic_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "outbox/undeliverable.h"

namespace walpost::outbox {
namespace {

using ::testing::ElementsAre;

// "" when the topic is allowed, else the reason.
std::string Reason(const TopicRules& rules, std::string_view topic) {
  const absl::Status status = rules.Check(topic);
  return status.ok() ? "" : ReasonCodeOf(status);
}

TEST(TopicPatternTest, StarStandsForAnyTextAlsoNone) {
  for (const auto& [topic, pattern] :
       {std::pair{"shop.order", "shop.*"}, std::pair{"shop.", "shop.*"},
        std::pair{"a.order.b", "a.*.b"}, std::pair{"a..b", "a.*.b"}, std::pair{"anything", "*"},
        std::pair{"a", "**"}, std::pair{"abab", "*ab"}, std::pair{"xaxbx", "*a*b*"}}) {
    EXPECT_TRUE(MatchesPattern(topic, pattern)) << topic << " " << pattern;
  }
  for (const auto& [topic, pattern] :
       {std::pair{"shop", "shop.*"}, std::pair{"Shop.order", "shop.*"}, std::pair{"a.b", "a.*.b"},
        std::pair{"order", "orders"}, std::pair{"orders", "order"}, std::pair{"xbxa", "*a*b"}}) {
    EXPECT_FALSE(MatchesPattern(topic, pattern)) << topic << " " << pattern;
  }
}

TEST(TopicPatternTest, IsLegalWhereATopicOfItIs) {
  EXPECT_TRUE(IsLegalTopicPattern("*"));
  EXPECT_TRUE(IsLegalTopicPattern("shop.*-v1"));
  EXPECT_FALSE(IsLegalTopicPattern(""));
  EXPECT_FALSE(IsLegalTopicPattern("shop .*"));
  EXPECT_FALSE(IsLegalTopicPattern(".."));
  EXPECT_TRUE(AllowsAnyTopic("*"));
  EXPECT_TRUE(AllowsAnyTopic("**"));
  EXPECT_FALSE(AllowsAnyTopic("a*"));
  EXPECT_FALSE(AllowsAnyTopic(""));
}

TEST(TopicRulesTest, WhatTheTemplateCanGiveIsAllowedWhenNothingIsListed) {
  const TopicRules rules({{}, {{"login", "audit"}}, {}}, "outbox.event.*");
  EXPECT_EQ(Reason(rules, "outbox.event.order"), "");
  EXPECT_EQ(Reason(rules, "audit"), "");
  EXPECT_EQ(Reason(rules, "order"), "topic_not_allowed");
  EXPECT_EQ(Reason(rules, "outbox.eventorder"), "topic_not_allowed");
}

TEST(TopicRulesTest, ListComesInsteadOfTheTemplate) {
  const TopicRules rules({{"shop.*", "audit"}, {}, {}}, "*");
  EXPECT_EQ(Reason(rules, "shop.order"), "");
  EXPECT_EQ(Reason(rules, "audit"), "");
  EXPECT_EQ(Reason(rules, "order"), "topic_not_allowed");
  EXPECT_EQ(Reason(rules, "no topic"), "row_invalid");
  EXPECT_THAT(NamesAmong({"shop.*", "audit", "*"}), ElementsAre("audit"));
}

TEST(TopicRulesTest, NothingOfWalpostsOrKafkasIsADestinationWhateverIsAllowed) {
  TopicOptions options;
  options.own = {"progress", "dead-letters"};
  for (const auto& allowed :
       {std::vector<std::string>{}, std::vector<std::string>{"*"},
        std::vector<std::string>{"progress", "dead-letters", "__consumer_offsets",
                                 "walpost.dead-letter"}}) {
    options.allowed = allowed;
    options.by_aggregate_type = {{"x", "progress"}};
    const TopicRules rules(options, "*");
    for (const char* topic :
         {"progress", "dead-letters", "__consumer_offsets", "__transaction_state",
          "walpost.dead-letter", "walpost.progress.of-another-pipeline"}) {
      EXPECT_EQ(Reason(rules, topic), "topic_not_allowed") << topic;
    }
  }
  options.allowed = {"*"};
  for (const char* topic : {"_schemas", "walpost", "walposts", "a__b", "progress2"}) {
    EXPECT_EQ(Reason(TopicRules(options, "*"), topic), "") << topic;
  }
}

}  // namespace
}  // namespace walpost::outbox
