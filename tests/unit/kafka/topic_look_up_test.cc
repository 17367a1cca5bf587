// What one broker says of a topic, and each of the others, on librdkafka's mock clusters.
#include "kafka/topic_look_up.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <set>
#include <string>
#include <vector>

#include "kafka/client.h"
#include "kafka/topic_leaders.h"
#include "support/mock_kafka.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;

// Clients are destroyed on threads of their own: what they have not freed at the end looks like a
// leak.
class AllAreDestroyed : public ::testing::Environment {
  void TearDown() override { EXPECT_TRUE(WaitForDestroyed(std::chrono::seconds(30))); }
};

[[maybe_unused]] const ::testing::Environment* const kAllAreDestroyed =
    ::testing::AddGlobalTestEnvironment(new AllAreDestroyed);

// The producer asks one cluster, and who asks each broker asks the other one: as where the
// producer's broker was cut off.
class TopicLookUpTest : public ::testing::Test {
 protected:
  static KafkaOptions OptionsOf(const testing::MockKafka& kafka) {
    KafkaOptions options;
    options.properties = {{"bootstrap.servers", kafka.bootstrap()}};
    return options;
  }

  TopicQuestion Ask() {
    const absl::StatusOr<Producer> producer = MakeClient(OptionsOf(asked_), RD_KAFKA_PRODUCER);
    EXPECT_TRUE(producer.ok()) << producer.status();
    TopicQuestions questions;
    questions.each.emplace_back().name = "orders";
    AskAboutTopics(OptionsOf(others_), producer->get(), /*describe=*/false, &questions);
    return questions.each.front();
  }

  testing::MockKafka asked_;
  testing::MockKafka others_;
};

TEST_F(TopicLookUpTest, MissingRightThatAnotherBrokerKnowsIsDisputed) {
  asked_.FailTopic("orders", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  others_.CreateTopic("orders", 1);
  const TopicQuestion found = Ask();
  EXPECT_EQ(found.topic_error, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  EXPECT_TRUE(found.disputed());
}

TEST_F(TopicLookUpTest, MissingTopicThatAnotherBrokerKnowsIsDisputed) {
  asked_.FailTopic("orders", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  others_.CreateTopic("orders", 1);
  EXPECT_TRUE(Ask().disputed());
}

TEST_F(TopicLookUpTest, MissingRightThatAllBrokersReportIsNotDisputed) {
  for (testing::MockKafka* each : {&asked_, &others_}) {
    each->FailTopic("orders", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  }
  EXPECT_FALSE(Ask().disputed());
}

TEST_F(TopicLookUpTest, MissingRightWhenNoOtherBrokerAnswersIsNotDisputed) {
  asked_.FailTopic("orders", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  others_.SetDown(true);
  const TopicQuestion found = Ask();
  EXPECT_FALSE(found.disputed());
  EXPECT_TRUE(found.alone);
}

TEST_F(TopicLookUpTest, TopicThatIsThereIsNotDisputed) {
  asked_.CreateTopic("orders", 1);
  others_.CreateTopic("orders", 1);
  EXPECT_FALSE(Ask().disputed());
}

// It may be the only one that knows, and its connection takes a few of these round trips.
TEST(TopicLookUp, BrokerThatIsSomeRoundTripsAwayIsHeardOfATopicThatTheNearestDoesNotKnow) {
  constexpr std::chrono::milliseconds kRoundTrip{250};
  testing::MockKafka kafka(/*brokers=*/2);
  kafka.FailTopic("orders", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  kafka.SetDelay(static_cast<int>(kRoundTrip.count()), /*broker=*/2);
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", kafka.bootstrap()}};
  TopicQuestions questions;
  questions.each.emplace_back().name = "orders";
  const auto began = std::chrono::steady_clock::now();
  AskWhichTopicsAreRejected(options, &questions);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 2 * kRoundTrip) << "to connect, and to ask";
  EXPECT_TRUE(questions.each.front().asked);
}

TEST(TopicLookUp, BrokerThatDidNotAnswerIsNotWaitedForAgain) {
  testing::MockKafka kafka(/*brokers=*/2);
  kafka.FailTopic("orders", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  kafka.SetDelay(150, /*broker=*/1);  // so the time ends while it is asked
  kafka.SetDelay(60'000, /*broker=*/2);
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", kafka.bootstrap()}};
  TopicQuestions questions;
  questions.each.emplace_back().name = "orders";
  const auto ask = [&] {
    const auto began = std::chrono::steady_clock::now();
    AskWhichTopicsAreRejected(options, &questions);
    return std::chrono::steady_clock::now() - began;
  };
  questions.silent_brokers = {3};
  const auto waited = ask();
  EXPECT_GE(waited, kNextBrokerForLookUp) << "another one did not answer before";
  EXPECT_EQ(questions.answered, Answered::kSome);
  EXPECT_EQ(questions.silent_brokers, std::set<std::int32_t>{2});
  EXPECT_LT(ask(), waited);
}

// It may be the one that knows them.
TEST(FindUnseenTopicsTest, TopicsThatABrokerWithoutAnAnswerMayKnowAreUndecided) {
  testing::MockKafka kafka(/*brokers=*/2);
  kafka.CreateTopic("known", 1);
  kafka.FailTopic("orders", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  kafka.FailTopic("hidden", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  kafka.SetDelay(150, /*broker=*/1);  // so the time ends while it is asked
  kafka.SetDelay(60'000, /*broker=*/2);
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", kafka.bootstrap()}};
  const auto find = [&](const std::string& topic, milliseconds timeout) {
    return FindUnseenTopics(options, {topic}, timeout, UnseenFor{.hidden = milliseconds(0)})
        .status()
        .code();
  };
  EXPECT_EQ(find("orders", kUnknownFor + milliseconds(500)), absl::StatusCode::kUnavailable);
  EXPECT_EQ(find("hidden", milliseconds(500)), absl::StatusCode::kUnavailable);
  EXPECT_EQ(find("known", milliseconds(500)), absl::StatusCode::kOk);
  const absl::StatusOr<Producer> client = MakeClient(options, RD_KAFKA_CONSUMER);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto ask = [&](const std::string& topic, milliseconds timeout) {
    return AskForLeaders(options, client->get(), topic, timeout, {.hidden = milliseconds(0)})
        .status()
        .code();
  };
  EXPECT_EQ(ask("hidden", milliseconds(2'000)), absl::StatusCode::kUnavailable);
  kafka.SetDelay(0, /*broker=*/2);
  EXPECT_EQ(ask("hidden", milliseconds(30'000)), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ask("orders", milliseconds(30'000)), absl::StatusCode::kNotFound);
}

// Who writes events names as many as they like.
TEST(FindUnseenTopicsTest, TopicsThatNoBrokerKnowsAreUnknownHoweverLongTheQuestionsTake) {
  testing::MockKafka kafka;
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", kafka.bootstrap()}};
  std::vector<std::string> names;
  for (int i = 0; i < 2'500; ++i) {
    names.push_back("none" + std::to_string(i));
    kafka.FailTopic(names.back(), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  }
  const auto unseen = FindUnseenTopics(options, names, milliseconds(0), UnseenFor());
  ASSERT_TRUE(unseen.ok()) << unseen.status();
  EXPECT_EQ(unseen->size(), names.size());
}

// Its right was given meanwhile.
TEST(AskForLeadersTest, TopicThatIsShownAfterALongWaitIsFound) {
  testing::MockKafka kafka;
  kafka.CreateTopic("orders", 2);
  kafka.FailTopic("orders", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", kafka.bootstrap()}};
  const absl::StatusOr<Producer> client = MakeClient(options, RD_KAFKA_CONSUMER);
  ASSERT_TRUE(client.ok()) << client.status();
  kafka.FailTopic("none", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  const auto given = std::async(std::launch::async, [&] {
    EXPECT_TRUE(FindUnseenTopics(options, {"none"}, milliseconds(0), UnseenFor()).ok());
    kafka.FailTopic("orders", RD_KAFKA_RESP_ERR_NO_ERROR);
  });
  const auto partitions = CountPartitions(options, client->get(), "orders", milliseconds(1'000),
                                          {.hidden = kUnknownFor * 20});
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  EXPECT_EQ(*partitions, 2);
}

TEST(FindUnseenTopicsTest, TopicsAreUndecidedWhereNobodyAnswers) {
  testing::MockKafka kafka;
  kafka.SetDown(true);
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", kafka.bootstrap()}};
  EXPECT_EQ(FindUnseenTopics(options, {"orders"}, milliseconds(500), UnseenFor()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(TopicLookUpTest, LeadersThatTheBrokerNamesTooAreAgreed) {
  others_.CreateTopic("orders", 2);
  EXPECT_EQ(AskWhoLeads(OptionsOf(others_), "orders", {1, 1}), Leadership::kAgreed);
  EXPECT_EQ(AskWhoLeads(OptionsOf(others_), "orders", {}), Leadership::kAgreed);
}

TEST_F(TopicLookUpTest, LeaderThatTheBrokerDoesNotNameIsDisputed) {
  others_.CreateTopic("orders", 2);
  EXPECT_EQ(AskWhoLeads(OptionsOf(others_), "orders", {1, 2}), Leadership::kDisputed);
}

TEST_F(TopicLookUpTest, LeadersOfWhomNoBrokerSaysAnythingAreUnsaid) {
  others_.SetDown(true);
  EXPECT_EQ(AskWhoLeads(OptionsOf(others_), "orders", {1}), Leadership::kUnsaid);
  KafkaOptions impossible;
  impossible.properties = {{"no.such.property", "1"}};
  EXPECT_EQ(AskWhoLeads(impossible, "orders", {1}), Leadership::kUnsaid);
}

TEST_F(TopicLookUpTest, LeadersOfATopicThatTheBrokerDoesNotDescribeAreUnsaid) {
  for (const auto error :
       {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART}) {
    others_.FailTopic("orders", error);
    EXPECT_EQ(AskWhoLeads(OptionsOf(others_), "orders", {1}), Leadership::kUnsaid) << error;
    EXPECT_EQ(AskWhoLeads(OptionsOf(others_), "orders", {}), Leadership::kUnsaid) << error;
  }
}

// As of partitions that were added.
TEST_F(TopicLookUpTest, LeadersOfFewerPartitionsThanTheBrokerHasAreUnsaid) {
  others_.CreateTopic("orders", 2);
  EXPECT_EQ(AskWhoLeads(OptionsOf(others_), "orders", {1}), Leadership::kUnsaid);
}

}  // namespace
}  // namespace walpost::kafka
