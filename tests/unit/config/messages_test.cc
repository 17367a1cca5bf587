#include "config/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"

namespace walpost::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kLeast[] = "sink: {kafka: {properties: {bootstrap.servers: k}}}\n";

absl::StatusOr<Config> ParseWith(const std::string& yaml) {
  return Parse(kLeast + yaml, "w.yaml", {});
}

std::string ProblemsOf(const std::string& yaml) {
  return std::string(ParseWith(yaml).status().message());
}

TEST(MessagesTest, NoneAreEventsUnlessPrefixesAreListed) {
  const Config config = ParseWith("").value();
  EXPECT_THAT(config.run.pipeline.messages.prefixes, IsEmpty());
  EXPECT_THAT(config.run.source.message_prefixes, IsEmpty());
}

TEST(MessagesTest, SettingsReachPipelineAndSource) {
  const Config config =
      ParseWith("messages: {prefixes: [shop, billing], topic: 'm.{prefix}', value: {format: raw}}")
          .value();
  EXPECT_THAT(config.run.pipeline.messages.prefixes, ElementsAre("shop", "billing"));
  EXPECT_THAT(config.run.source.message_prefixes, ElementsAre("shop", "billing"));
  EXPECT_EQ(config.run.pipeline.messages.topic, "m.{prefix}");
  EXPECT_EQ(config.run.pipeline.messages.encoder.format, envelope::ValueFormat::kRaw);
}

TEST(MessagesTest, OnePrefixMayStandAlone) {
  const Config config = ParseWith("messages: {prefixes: shop}").value();
  EXPECT_THAT(config.run.pipeline.messages.prefixes, ElementsAre("shop"));
  EXPECT_EQ(config.run.pipeline.messages.topic, "outbox.event.{aggregate_type}");
  EXPECT_EQ(config.run.pipeline.messages.encoder.format, envelope::ValueFormat::kEnvelope);
}

TEST(MessagesTest, NoTableIsNeededBesidePrefixes) {
  const Config config = ParseWith("messages: {prefixes: shop}\noutboxes: []").value();
  EXPECT_THAT(config.run.pipeline.outboxes, IsEmpty());
  EXPECT_THAT(config.run.source.tables, IsEmpty());
  EXPECT_THAT(ProblemsOf("outboxes: []"),
              HasSubstr("w.yaml:2:11: outboxes: expected a list with at least one"));
}

TEST(MessagesTest, WrongPrefixesAreReported) {
  for (const std::string& prefixes :
       {std::string("['']"), std::string("[\"a\\n\"]"), "['" + std::string(201, 'a') + "']"}) {
    EXPECT_THAT(ProblemsOf("messages: {prefixes: " + prefixes + "}"),
                HasSubstr("messages.prefixes: a prefix has 1 to 200 bytes"))
        << prefixes;
  }
  EXPECT_THAT(ProblemsOf("messages: {prefixes: [a, b, a]}"), HasSubstr("'a' is listed twice"));
}

TEST(MessagesTest, TopicOfAColumnIsReported) {
  EXPECT_THAT(ProblemsOf("messages: {prefixes: a, topic: '{event_type}'}"),
              HasSubstr("messages.topic: topic template '{event_type}': a message has no"));
}

TEST(MessagesTest, TopicThatOnlyTheMessageBoundsNeedsAList) {
  EXPECT_THAT(ProblemsOf("messages: {prefixes: a, topic: '{type}'}"),
              HasSubstr("messages.topics.allowed: any SQL role may emit"));
  const Config config = ParseWith(
                            "messages: {prefixes: a, topic: '{type}', topics: {allowed: ['x*']}, "
                            "on_undeliverable: halt}")
                            .value();
  EXPECT_THAT(config.run.pipeline.messages.topics.allowed, ElementsAre("x*"));
  EXPECT_TRUE(config.run.pipeline.messages.halts);
  EXPECT_FALSE(ParseWith("messages: {prefixes: a}")->run.pipeline.messages.halts);
}

TEST(MessagesTest, ShownSettingsReadBackAsTheSame) {
  const Config config =
      ParseWith(
          "messages: {prefixes: ['no', \"a$${b}'\"], topic: 'm.{prefix}', value: {format: raw}}\n"
          "outboxes: []")
          .value();
  const Config again = Parse(Show(config), "shown.yaml", {}).value();
  EXPECT_EQ(again.run.pipeline.messages.prefixes, config.run.pipeline.messages.prefixes);
  EXPECT_EQ(again.run.pipeline.messages.topic, "m.{prefix}");
  EXPECT_EQ(again.run.pipeline.messages.encoder.format, envelope::ValueFormat::kRaw);
  EXPECT_THAT(again.run.pipeline.outboxes, IsEmpty());
}

}  // namespace
}  // namespace walpost::config
