// Whether a topic is compacted. What a real broker answers is in
// tests/integration/unread_topic_test.py.

#include "kafka/topics.h"

#include <gtest/gtest.h>

#include <chrono>

#include "kafka/client.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Nothing listens there.
KafkaOptions NobodyAnswers() {
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", "127.0.0.1:1"}};
  return options;
}

TEST(TopicPolicyTest, NoAnswerIsAskedForAgainAndIsNoAnswer) {
  constexpr milliseconds kTimeout{100};
  const auto client = MakeClient(NobodyAnswers(), RD_KAFKA_PRODUCER);
  ASSERT_TRUE(client.ok());
  const auto begin = steady_clock::now();
  EXPECT_FALSE(ReadTopicPolicy(client->get(), "orders", kTimeout).ok());
  EXPECT_GE(steady_clock::now() - begin, kPolicyAsks * kTimeout);
}

TEST(TopicPolicyTest, TopicThatDoesNotTellIsNamedWithTheRight) {
  const absl::Status status = CheckCompactionIsKnown(NobodyAnswers(), {"orders"}, milliseconds(50));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("'orders'"), std::string::npos) << status;
  EXPECT_NE(status.message().find("DESCRIBE_CONFIGS"), std::string::npos) << status;
}

TEST(TopicPolicyTest, NoTopicNeedsNoBroker) {
  EXPECT_TRUE(CheckCompactionIsKnown(NobodyAnswers(), {}, milliseconds(50)).ok());
}

TEST(TopicPolicyTest, AnswerWithoutThePolicySaysNothingAboutCompaction) {
  EXPECT_FALSE(LimitsOf({{"max.message.bytes", "1000"}}).has_cleanup_policy);
  EXPECT_TRUE(LimitsOf({{"cleanup.policy", "delete"}}).has_cleanup_policy);
}

}  // namespace
}  // namespace walpost::kafka
