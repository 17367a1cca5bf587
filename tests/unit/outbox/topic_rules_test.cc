// Where events may go: the same rule for rows and for messages.

#include "outbox/topic_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "outbox/event.h"

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
  for (const char* topic : {"walpost", "walposts", "a__b", "progress2"}) {
    EXPECT_EQ(Reason(TopicRules(options, "*"), topic), "") << topic;
  }
}

// Other systems keep their own state in such topics: the Schema Registry in _schemas.
TEST(TopicRulesTest, TopicThatBeginsWithAnUnderscoreIsAllowedOnlyWhereTheConfigurationSaysSo) {
  for (const char* pattern : {"*", "**", "*schemas", "*_schemas"}) {
    EXPECT_EQ(Reason(TopicRules({{pattern}, {}, {}}, "*"), "_schemas"), "topic_not_allowed")
        << pattern;
  }
  EXPECT_EQ(Reason(TopicRules({{}, {}, {}}, "*schemas"), "_schemas"), "topic_not_allowed");
  EXPECT_EQ(Reason(TopicRules({{"*"}, {}, {}}, "*"), "shop_v1"), "");
  EXPECT_EQ(Reason(TopicRules({{"*", "_audit"}, {}, {}}, "*"), "_audit"), "");
  EXPECT_EQ(Reason(TopicRules({{"*", "_audit"}, {}, {}}, "*"), "_schemas"), "topic_not_allowed");
  EXPECT_EQ(Reason(TopicRules({{"_shop.*"}, {}, {}}, "*"), "_shop.order"), "");
  EXPECT_EQ(Reason(TopicRules({{}, {}, {}}, "_shop.*"), "_shop.order"), "");
}

TEST(TopicRulesTest, TopicWithAnUnderscoreThatTheConfigurationItselfSendsToNeedsNoEntry) {
  EXPECT_EQ(Reason(TopicRules({{"*"}, {}, {}}, "_audit"), "_audit"), "");
  EXPECT_EQ(Reason(TopicRules({{"*"}, {{"login", "_audit"}}, {}}, "*"), "_audit"), "");
  EXPECT_EQ(Reason(TopicRules({{}, {{"login", "_audit"}}, {}}, "shop.*"), "_audit"), "");
  EXPECT_EQ(Reason(TopicRules({{"shop.*"}, {}, {}}, "_audit"), "_audit"), "topic_not_allowed")
      << "not among those that are listed";
}

// "literal", "{placeholder}" for each part.
std::vector<std::string> Parts(std::string_view text) {
  std::vector<std::string> parts;
  const TopicTemplate parsed = TopicTemplate::Parse(text).value();
  for (const TopicTemplate::Part& part : parsed.parts()) {
    parts.push_back(part.is_placeholder ? '{' + part.text + '}' : part.text);
  }
  return parts;
}

using Strings = std::vector<std::string>;

TEST(TopicTemplateTest, LiteralsAndPlaceholdersAlternateAsWritten) {
  EXPECT_EQ(Parts("orders"), Strings({"orders"}));
  EXPECT_EQ(Parts("{aggregate_type}"), Strings({"{aggregate_type}"}));
  EXPECT_EQ(Parts("shop.{a}-{b}_v1"), Strings({"shop.", "{a}", "-", "{b}", "_v1"}));
  EXPECT_EQ(Parts("{a}{b}"), Strings({"{a}", "{b}"}));
}

TEST(TopicTemplateTest, PlaceholderMayNameAnyColumn) {
  EXPECT_EQ(Parts("{My Column}"), Strings({"{My Column}"}));
}

TEST(TopicTemplateTest, UnbalancedOrEmptyBracesAreInvalid) {
  for (const char* text : {"{", "a{", "{a", "{}", "a{}b", "}", "a}", "{a}}"}) {
    EXPECT_EQ(TopicTemplate::Parse(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(TopicTemplateTest, LiteralThatKafkaRejectsIsInvalidAndQuoted) {
  for (const char* text : {"orders!", "a b", "a/{b}", "{b}:c", "größe"}) {
    const absl::Status status = TopicTemplate::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(status.message()).find(text), std::string::npos);
  }
}

TEST(TopicTemplateTest, EmptyIsInvalid) {
  EXPECT_EQ(TopicTemplate::Parse("").status().message(), "topic template is empty");
}

TEST(LegalTopicTest, EveryCharacterKafkaAllowsAndNoOther) {
  const std::string allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  for (int i = 0; i < 256; ++i) {
    const char c = static_cast<char>(i);
    EXPECT_EQ(IsLegalTopic(std::string("a") + c), allowed.find(c) != std::string::npos) << i;
  }
}

TEST(LegalTopicTest, LengthEndsAt249) {
  EXPECT_FALSE(IsLegalTopic(""));
  EXPECT_TRUE(IsLegalTopic("a"));
  EXPECT_TRUE(IsLegalTopic(std::string(249, 'a')));
  EXPECT_FALSE(IsLegalTopic(std::string(250, 'a')));
}

TEST(LegalTopicTest, DotsAloneAreNoTopic) {
  EXPECT_FALSE(IsLegalTopic("."));
  EXPECT_FALSE(IsLegalTopic(".."));
  EXPECT_TRUE(IsLegalTopic("..."));
}

}  // namespace
}  // namespace walpost::outbox
