#include "outbox/topic_template.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace walpost::outbox {
namespace {

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
