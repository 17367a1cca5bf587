// When rejections count, and how often brokers are asked for it, on librdkafka's mock cluster.

#include "kafka/held_rejections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kafka/client.h"
#include "support/mock_kafka.h"

namespace walpost::kafka {
namespace {

using delivery::FailureKind;
using delivery::Sequence;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Clients are destroyed on threads of their own: what they have not freed at the end looks like a
// leak.
class AllAreDestroyed : public ::testing::Environment {
  void TearDown() override { EXPECT_TRUE(WaitForDestroyed(std::chrono::seconds(30))); }
};

[[maybe_unused]] const ::testing::Environment* const kAllAreDestroyed =
    ::testing::AddGlobalTestEnvironment(new AllAreDestroyed);

// Runs the next job when it is said.
class JobsByHand : public base::BlockingRunner {
 public:
  void Run(std::function<void()> work, std::function<void()> done) override {
    jobs_.emplace_back(std::move(work), std::move(done));
  }

  void RunNext() {
    const auto [work, done] = std::move(jobs_.front());
    jobs_.pop_front();
    work();
    done();
  }

  std::size_t waiting() const { return jobs_.size(); }

 private:
  std::deque<std::pair<std::function<void()>, std::function<void()>>> jobs_;
};

class HeldRejectionsTest : public ::testing::Test {
 protected:
  using Decided = std::vector<std::pair<Sequence, FailureKind>>;

  HeldRejectionsTest() {
    for (const char* topic : {"orders", "refunds"}) {
      mock_.CreateTopic(topic, 2);
    }
  }

  void Hold(Sequence sequence, const std::string& topic = "orders",
            std::vector<std::int32_t> leaders = {1, 1}) {
    held_.Hold({sequence, {FailureKind::kRecordInvalid, "said", true}, topic, std::move(leaders)});
  }

  // Of what is held now and asked about, as a session does it.
  Decided Ask(HeldRejections* held) {
    held->Ask();
    EXPECT_FALSE(held->answered());
    EXPECT_EQ(jobs_.waiting(), 1U);
    jobs_.RunNext();
    EXPECT_TRUE(held->answered());
    return Take(held);
  }

  Decided Ask() { return Ask(&held_); }

  Decided Take(HeldRejections* held) {
    Decided decided;
    for (const HeldRejections::Held& each : held->TakeDecided(now_)) {
      decided.emplace_back(each.sequence, each.failure.kind);
      EXPECT_EQ(each.failure.must_last, each.failure.kind == FailureKind::kRecordInvalid);
    }
    return decided;
  }

  Decided Take() { return Take(&held_); }

  KafkaOptions Options() const {
    KafkaOptions options;
    options.properties = {{"bootstrap.servers", mock_.bootstrap()}};
    return options;
  }

  walpost::testing::MockKafka mock_;
  JobsByHand jobs_;
  TopicMemory memory_{std::chrono::milliseconds(0)};
  base::MonotonicTime now_ = steady_clock::now();
  HeldRejections held_{Options(), &jobs_, &memory_};
};

TEST_F(HeldRejectionsTest, ManyOfOneTopicAreServedByOneQuestion) {
  for (Sequence sequence = 0; sequence < 3; ++sequence) {
    Hold(sequence);
    held_.Ask();
  }
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(
      Ask(), ElementsAre(Pair(0, FailureKind::kRecordInvalid), Pair(1, FailureKind::kRecordInvalid),
                         Pair(2, FailureKind::kRecordInvalid)));
}

TEST_F(HeldRejectionsTest, OneThatIsHeldBehindTheAnswerIsServedWithoutAQuestion) {
  Hold(0);
  Ask();
  Hold(1);
  EXPECT_THAT(Take(), ElementsAre(Pair(1, FailureKind::kRecordInvalid)));
  EXPECT_EQ(jobs_.waiting(), 0U);
}

TEST_F(HeldRejectionsTest, AgreementIsKnownToTheNextSessionForAWhile) {
  Hold(0);
  Ask();
  HeldRejections next(Options(), &jobs_, &memory_);
  now_ += kLeadersKept - milliseconds(1);
  next.Hold({1, {FailureKind::kRecordInvalid, "said", true}, "orders", {1, 1}});
  EXPECT_THAT(Take(&next), ElementsAre(Pair(1, FailureKind::kRecordInvalid)));
  now_ += milliseconds(1);
  next.Hold({2, {FailureKind::kRecordInvalid, "said", true}, "orders", {1, 1}});
  EXPECT_THAT(Take(&next), IsEmpty());
  EXPECT_THAT(Ask(&next), ElementsAre(Pair(2, FailureKind::kRecordInvalid)));
}

TEST_F(HeldRejectionsTest, TopicsAreAskedAboutOneAfterTheOther) {
  Hold(0, "orders");
  Hold(1, "refunds");
  EXPECT_THAT(Ask(), ElementsAre(Pair(0, FailureKind::kRecordInvalid)));
  EXPECT_THAT(Ask(), ElementsAre(Pair(1, FailureKind::kRecordInvalid)));
}

// What is kSessionEnded ends the session, and all of it is held again in the next one.
TEST_F(HeldRejectionsTest, TopicThatIsDisputedAgainAndAgainKeepsNoOtherWaiting) {
  for (const std::string asked : {"orders", "refunds", "orders"}) {
    Hold(0, "orders", {1, 2});
    Hold(1, "refunds", {1, 1});
    now_ += kLeadersKept;
    const bool orders = asked == "orders";
    EXPECT_THAT(Ask(), ElementsAre(Pair(orders ? 0 : 1, orders ? FailureKind::kSessionEnded
                                                               : FailureKind::kRecordInvalid)));
    held_.TakeAll();
  }
}

TEST_F(HeldRejectionsTest, OthersLeadersAreAskedAboutAnew) {
  Hold(0);
  Ask();
  Hold(1, "orders", {1, 2});
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(Ask(), ElementsAre(Pair(1, FailureKind::kSessionEnded)));
  EXPECT_TRUE(memory_.compare_leaders);
  Hold(2);
  EXPECT_THAT(Take(), IsEmpty()) << "that they agreed is not known any more";
}

TEST_F(HeldRejectionsTest, NoAnswerDecidesNothingAndIsNotKept) {
  mock_.SetDown(true);
  Hold(0);
  EXPECT_THAT(Ask(), ElementsAre(Pair(0, FailureKind::kSessionEnded)));
  EXPECT_FALSE(memory_.compare_leaders);
  mock_.SetDown(false);
  Hold(1);
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(Ask(), ElementsAre(Pair(1, FailureKind::kRecordInvalid)));
}

TEST_F(HeldRejectionsTest, QuestionOfASessionThatIsOverAsksNobody) {
  mock_.SetDown(true);  // so it would take kAnswerTimeout
  Hold(0);
  held_.Ask();
  EXPECT_EQ(held_.TakeAll().size(), 1U);
  const auto began = steady_clock::now();
  jobs_.RunNext();
  EXPECT_LT(steady_clock::now() - began, kAnswerTimeout / 2);
}

using Errors = std::vector<rd_kafka_resp_err_t>;

void ExpectAll(FailureKind kind, const Errors& errors) {
  for (const rd_kafka_resp_err_t error : errors) {
    EXPECT_EQ(Classify(error), kind) << rd_kafka_err2name(error);
  }
}

TEST(ClassifyTest, SuccessIsNoFailure) {
  ExpectAll(FailureKind::kNone, {RD_KAFKA_RESP_ERR_NO_ERROR});
}

// Wrong here is a halt for nothing, or a record tried for ever.
TEST(ClassifyTest, AnswersAboutARecord) {
  ExpectAll(FailureKind::kRecordTooLarge,
            {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE});
  ExpectAll(FailureKind::kRecordInvalid,
            {RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, RD_KAFKA_RESP_ERR_INVALID_RECORD});
}

TEST(ClassifyTest, AnswersAboutATopic) {
  ExpectAll(FailureKind::kTopicUnknown,
            {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
             RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION});
  ExpectAll(FailureKind::kTopicInvalid, {RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION});
  ExpectAll(FailureKind::kTopicNotAuthorized, {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED});
}

// Judging a record by one of them would lose or reject a good event.
// Failure 71.
TEST(ClassifyTest, TroubleOfTheProducerSaysNothingAboutTheRecord) {
  ExpectAll(
      FailureKind::kSessionEnded,
      {RD_KAFKA_RESP_ERR__PURGE_QUEUE, RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
       RD_KAFKA_RESP_ERR__DESTROY, RD_KAFKA_RESP_ERR__FATAL, RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE,
       RD_KAFKA_RESP_ERR__FENCED, RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_RESP_ERR__INCONSISTENT,
       RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
       RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING,
       RD_KAFKA_RESP_ERR_PRODUCER_FENCED, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED});
}

// Counting them as attempts of the record would halt for an outage.
TEST(ClassifyTest, TroubleOfABrokerSaysNothingAboutTheRecord) {
  ExpectAll(
      FailureKind::kSessionEnded,
      {RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
       RD_KAFKA_RESP_ERR__TIMED_OUT, RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE,
       RD_KAFKA_RESP_ERR__ISR_INSUFF, RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
       RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
       RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE,
       RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
       RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR});
}

// Every record of the topic gets them: whoever set the topic up would have all its events judged.
TEST(ClassifyTest, WhatATopicSaysToEveryRecordIsNotAboutOne) {
  ExpectAll(FailureKind::kOther,
            {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT,
             RD_KAFKA_RESP_ERR_POLICY_VIOLATION});
}

TEST(ClassifyTest, AnythingElseIsUnclear) {
  ExpectAll(FailureKind::kOther,
            {RD_KAFKA_RESP_ERR_UNKNOWN, RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS,
             RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,
             RD_KAFKA_RESP_ERR_INVALID_MSG /* a checksum: damaged on its way */});
}

}  // namespace
}  // namespace walpost::kafka
