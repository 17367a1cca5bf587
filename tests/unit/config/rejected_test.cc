// Values that are rejected: impossible ones, unsafe ones, and settings whose feature is not built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"

namespace walpost::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLeast[] = "sink: {kafka: {properties: {bootstrap.servers: 'kafka:9092'}}}\n";

// The problems of a good file with one setting changed; empty when it is accepted.
std::string ProblemsOf(const std::string& set) {
  return std::string(Parse(kLeast, "w.yaml", {set}).status().message());
}

TEST(NotBuiltTest, ExactlyOnceIsRejectedByNameWithWhatToUseInstead) {
  EXPECT_THAT(ProblemsOf("delivery.mode=exactly_once"),
              AllOf(HasSubstr("delivery.mode: exactly_once is not built yet"),
                    HasSubstr("use at_least_once")));
}

TEST(RejectedTest, PolicyForUndeliverableEventsThatDoesNotExist) {
  EXPECT_THAT(ProblemsOf("delivery.on_undeliverable=dlq"),
              AllOf(HasSubstr("delivery.on_undeliverable"), HasSubstr("dead_letter")));
}

TEST(RejectedTest, DeadLetterTopicThatKafkaDoesNotAllow) {
  EXPECT_THAT(ProblemsOf("delivery.dead_letter_topic=dead letters"),
              HasSubstr("is not a topic's name"));
}

TEST(RejectedTest, ProgressTopicThatKafkaDoesNotAllow) {
  EXPECT_THAT(ProblemsOf("delivery.progress_topic=shop progress"),
              HasSubstr("delivery.progress_topic: 'shop progress' is not a topic's name"));
  EXPECT_THAT(ProblemsOf("delivery.progress_topic=" + std::string(250, 'a')),
              HasSubstr("delivery.progress_topic: "));
}

TEST(RejectedTest, MonitorThatLooksWithoutAPause) {
  EXPECT_THAT(ProblemsOf("monitor.interval=999ms"),
              HasSubstr("monitor.interval: must be at least 1s"));
  EXPECT_THAT(ProblemsOf("monitor.interval=15"),
              HasSubstr("monitor.interval: '15' is not a duration"));
}

TEST(ImpossibleTest, VersionOtherThanOne) {
  EXPECT_THAT(ProblemsOf("version=2"), HasSubstr("version: this walpost reads version 1"));
  EXPECT_EQ(ProblemsOf("version=1"), "");
}

TEST(ImpossibleTest, EmptyName) {
  EXPECT_THAT(ProblemsOf("name="), HasSubstr("name: must not be empty"));
}

TEST(ImpossibleTest, SlotNamesThatPostgresRejects) {
  for (const std::string& slot : {std::string(), std::string("Shop"), std::string("shop-1"),
                                  std::string("shöp"), std::string(64, 'a')}) {
    EXPECT_THAT(ProblemsOf("source.slot=" + slot), HasSubstr("is not a slot name")) << slot;
  }
  EXPECT_EQ(ProblemsOf("source.slot=" + std::string(63, 'a')), "");
}

TEST(ImpossibleTest, PublicationNameOfNoOrTooManyCharacters) {
  EXPECT_THAT(ProblemsOf("source.publication="), HasSubstr("source.publication: must be a name"));
  EXPECT_THAT(ProblemsOf("source.publication=" + std::string(64, 'p')),
              HasSubstr("source.publication: must be a name"));
}

TEST(ImpossibleTest, WaitForAnUnknownTopicThatIsTooLong) {
  EXPECT_THAT(ProblemsOf("delivery.unknown_topic_wait=11min"),
              HasSubstr("delivery.unknown_topic_wait: must be 10min at most"));
  EXPECT_EQ(ProblemsOf("delivery.unknown_topic_wait=10min"), "");
}

TEST(ImpossibleTest, InFlightLimitOutsideItsRange) {
  for (const char* size : {"0", "65535", "5GiB", "4294967297"}) {
    EXPECT_THAT(ProblemsOf(std::string("delivery.in_flight_bytes_max=") + size),
                HasSubstr("delivery.in_flight_bytes_max: must be between 64KiB and 4GiB"))
        << size;
  }
  EXPECT_EQ(ProblemsOf("delivery.in_flight_bytes_max=64KiB"), "");
}

TEST(ImpossibleTest, WrongShapes) {
  EXPECT_THAT(ProblemsOf("source=db"), HasSubstr("source: expected a map of keys"));
  EXPECT_THAT(ProblemsOf("source.slot=[a]"), HasSubstr("source.slot: expected one value"));
  EXPECT_THAT(ProblemsOf("outboxes=a.b"), HasSubstr("outboxes: expected a list"));
  EXPECT_THAT(ProblemsOf("sink.kafka.properties=[a]"),
              HasSubstr("sink.kafka.properties: expected a map of librdkafka's properties"));
  EXPECT_THAT(ProblemsOf("sink.kafka.properties={acks: [1]}"),
              HasSubstr("sink.kafka.properties.acks: expected one value"));
}

TEST(KafkaPropertiesTest, MissingServersAreAProblem) {
  EXPECT_THAT(std::string(Parse("{}", "w.yaml", {}).status().message()),
              HasSubstr("w.yaml: sink.kafka.properties: bootstrap.servers is missing"));
}

TEST(KafkaPropertiesTest, UnknownOneIsNamed) {
  EXPECT_THAT(ProblemsOf("sink.kafka.properties={bootstrap.servers: k, linger.mz: 5}"),
              HasSubstr("sink.kafka.properties: linger.mz: No such configuration property"));
}

TEST(KafkaPropertiesTest, OneThatWouldBreakAGuaranteeIsRejectedWithTheReason) {
  for (const char* property : {"acks: 1", "enable.idempotence: false", "message.timeout.ms: 5000",
                               "transactional.id: x", "partitioner: random"}) {
    const std::string name = std::string(property).substr(0, std::string(property).find(':'));
    EXPECT_THAT(
        ProblemsOf(std::string("sink.kafka.properties={bootstrap.servers: k, ") + property + "}"),
        AllOf(HasSubstr(name + " cannot be set to"), HasSubstr("remove it")));
  }
}

}  // namespace
}  // namespace walpost::config
