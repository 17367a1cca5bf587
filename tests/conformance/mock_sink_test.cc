// The sink contract on librdkafka with its mock cluster, and failures only that can be asked for.
#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/kafka_sink_harness.h"
#include "delivery/tracker.h"
#include "kafka/producer_session.h"
#include "kafka/topic_look_up.h"
#include "support/mock_kafka.h"

namespace walpost::testing {
namespace {

using delivery::FailureKind;
using delivery::Sequence;
using delivery::Sink;
using delivery::SubmitResult;
using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = SubmitResult::Outcome;

// First of its kind, so that it outlives the sink.
struct OwnsMock {
  MockKafka kafka;
};

kafka::KafkaOptions WithoutLimits() {
  kafka::KafkaOptions options;
  options.limits_timeout = milliseconds(10);
  return options;
}

class MockHarness : private OwnsMock, public KafkaSinkHarness {
 public:
  explicit MockHarness(Properties more = {})
      : KafkaSinkHarness(OwnsMock::kafka.bootstrap(), std::move(more), WithoutLimits()) {}

  MockKafka& mock() { return OwnsMock::kafka; }

  std::string MakeTopic(int partitions) override {
    const std::string topic = NewName("topic");
    mock().CreateTopic(topic, partitions);
    return topic;
  }

  std::string MissingTopic(Sequence /*sequence*/) override {
    const std::string topic = NewName("missing");
    mock().FailTopic(topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    return topic;
  }

  void ArmPoison() override { mock().FailProduce({RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE}); }
};

const SinkHarnessCase kMock{"Mock", [] { return std::make_unique<MockHarness>(); }};

std::string NameOf(const ::testing::TestParamInfo<SinkHarnessCase>& tested) {
  return tested.param.name;
}

INSTANTIATE_TEST_SUITE_P(Mock, SinkContract, ::testing::Values(kMock), NameOf);

// The contract's helpers serve here too.
class MockSink : public SinkContract {
 protected:
  MockHarness& harness() { return static_cast<MockHarness&>(*harness_); }

  // So many accepted records, of a partition that is warm.
  void SubmitMany(const std::string& topic, int count) {
    for (int i = 0; i < count; ++i, ++next_) {
      MakeRecord(next_, topic, 0, "value " + std::to_string(i));
      ASSERT_EQ(Submit(next_), Outcome::kAccepted);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Mock, MockSink, ::testing::Values(kMock), NameOf);

TEST_P(MockSink, BrokerThatGoesAndComesBackCostsNothing) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().mock().SetDown(true);
  SubmitMany(topic, 100);
  Await("brokers down to be noticed",
        [this] { return !harness().notices().empty() && !harness().facts().connected; });
  Await("librdkafka's log", [this] {
    return ::testing::Matches(Contains(HasSubstr("Connection refused")))(harness().warnings());
  });
  EXPECT_EQ(reports_.outstanding.size(), 100U);
  harness().mock().SetDown(false);
  AwaitAllDelivered();
  EXPECT_EQ(harness().Read(topic, 0), Values(topic, 0));
  EXPECT_THAT(harness().notices(), Contains("kafka_brokers_down"));
  CloseAndAwait();
}

// Failures 64, 65.
TEST_P(MockSink, RetriableErrorsAreRetriedWithoutAReport) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().mock().FailProduce(
      {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS});
  SubmitMany(topic, 10);
  AwaitAllDelivered();
  EXPECT_EQ(harness().Read(topic, 0), Values(topic, 0));
  CloseAndAwait();
}

TEST_P(MockSink, CloseOfABrokerThatDoesNotAnswerGivesUpOnRequestsAfterTenSeconds) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().mock().SetDelay(60'000);
  SubmitMany(topic, 50);
  for (int i = 0; i < 5; ++i) {  // some are sent, the rest is queued
    harness().Step();
    Poll();
  }
  SubmitMany(topic, 50);
  sink_->Close();
  for (int i = 0; i < 10; ++i) {
    harness().Step();
    Poll();
  }
  EXPECT_EQ(reports_.closed, 0) << "an answer may still come";
  harness().Skip(milliseconds(10'000));
  Await("OnClosed", [this] { return reports_.closed > 0; });
  EXPECT_THAT(reports_.outstanding, IsEmpty());
  EXPECT_EQ(reports_.failed.size(), 100U);
}

// The processor time of this process, with the mock's own.
std::chrono::microseconds ProcessorTime() {
  rusage used{};
  CHECK_EQ(getrusage(RUSAGE_SELF, &used), 0);
  return std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// librdkafka's thread would spin for as long as more waits there.
TEST_P(MockSink, WhatWaitsForABrokerThatDoesNotAnswerTakesNoProcessorTime) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().mock().SetDelay(1'500);
  for (int batch = 0; batch < 20; ++batch) {
    SubmitMany(topic, 20);
    harness().Step();
    Poll();
  }
  const auto before = ProcessorTime();
  AwaitAllDelivered();
  EXPECT_LT(ProcessorTime() - before, milliseconds(300)) << "of some 3 s";
  harness().mock().SetDelay(0);
  EXPECT_EQ(harness().Read(topic, 0), Values(topic, 0));
  CloseAndAwait();
}

// A topic that was made anew with a smaller limit rejects the first request and takes the second.
TEST_P(MockSink, LargeRecordsBehindARejectedOneAreNotSentInARequestOfTheirOwn) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().ArmPoison();
  for (int i = 0; i < 4; ++i, ++next_) {
    MakeRecord(next_, topic, 0, std::string(i == 0 ? 700'000 : 400'000, 'x'));
    ASSERT_EQ(Submit(next_), Outcome::kAccepted);
  }
  Await("the failure", [this] { return reports_.Trouble(); });
  CloseAndAwait();
  EXPECT_THAT(harness().Read(topic, 0), ElementsAre("first of 0"));
}

TEST_P(MockSink, FirstRecordOfAPartitionIsSentAlone) {
  const std::string topic = harness().MakeTopic(2);
  Open();
  MakeRecord(0, topic, 0, "first");
  ASSERT_EQ(Offer(0).outcome, Outcome::kAccepted);
  MakeRecord(1, topic, 0, "second");
  MakeRecord(2, topic, 1, "first of another");
  EXPECT_EQ(Submit(1), Outcome::kAccepted);
  EXPECT_EQ(Submit(2), Outcome::kAccepted);
  Await("the first", [this] { return Delivered(0); });
  EXPECT_FALSE(Delivered(1)) << "in a request of its own";
  AwaitAllDelivered();
  CloseAndAwait();
}

TEST_P(MockSink, KeyDecidesThePartitionAsInJava) {
  const std::string topic = harness().MakeTopic(12);
  Open();
  const std::string key = "a-little-bit-long-string";
  const std::string value = "value";
  envelope::Record record;
  record.topic = topic;
  record.key = key;
  record.value = value;
  Await("room", [&] { return sink_->Submit(record, 0).outcome == Outcome::kAccepted; });
  reports_.outstanding.insert(0);
  AwaitAllDelivered();
  const std::int32_t expected = (-985981536 & 0x7fffffff) % 12;
  EXPECT_THAT(harness().Read(topic, expected), ::testing::ElementsAre("value"));
  CloseAndAwait();
}

TEST_P(MockSink, PartitionTheTopicDoesNotHaveIsRejected) {
  const std::string topic = harness().MakeTopic(2);
  Open();
  MakeRecord(0, topic, 2, "out of range");
  const SubmitResult result = Offer(0);
  EXPECT_EQ(result.outcome, Outcome::kRejected);
  EXPECT_EQ(result.failure.kind, FailureKind::kPartitionUnknown);
  EXPECT_THAT(result.failure.detail, HasSubstr("has no partition 2, only 2"));
  CloseAndAwait();
}

// The mock cannot describe topics, so only the broker would know a limit.
TEST_P(MockSink, RecordLargerThanTheProducerTakesGetsALargerOneWithoutAReportLost) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  SubmitMany(topic, 100);
  MakeRecord(next_, topic, 0, std::string(40'000'000, 'x'));
  EXPECT_EQ(Submit(next_), Outcome::kTopicPending) << "what was sent before it needs its reports";
  Await("its topic", [&] { return Submit(next_) == Outcome::kNotNow; });
  Reopen();
  ASSERT_EQ(Offer(next_++).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
  EXPECT_THAT(harness().notices(), Contains("kafka_producer_replaced"));
  EXPECT_EQ(reports_.delivered.size(), 102U);
  CloseAndAwait();
}

TEST_P(MockSink, ReconfiguredSinkGoesOnWithAnotherProducerAndNothingIsRepeated) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  SubmitMany(topic, 100);
  Poll();
  harness().Reconfigure();
  Reopen();
  EXPECT_EQ(reports_.delivered.size(), 101U);
  MakeRecord(next_, topic, 0, "after");
  ASSERT_EQ(Offer(next_++).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
  EXPECT_EQ(harness().Read(topic, 0), Values(topic, 0));
  CloseAndAwait();
}

// As after a password has changed, or while one partition has no leader.
TEST_P(MockSink, ReconfiguredSinkDoesNotWaitForAReportThatDoesNotCome) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().mock().SetDown(true);
  SubmitMany(topic, 10);
  Await("brokers down to be noticed", [this] { return !harness().facts().connected; });
  Poll();
  harness().Reconfigure();
  Poll();
  EXPECT_EQ(reports_.outgrown, 0);
  EXPECT_LE(*sink_->NextDeadline(), harness().now().mono + milliseconds(1'000));
  harness().Skip(milliseconds(1'000));
  Poll();
  EXPECT_EQ(reports_.outgrown, 1);
  sink_->Close();
  harness().Skip(milliseconds(10'000));
  Await("OnClosed", [this] { return reports_.closed > 0; });
  EXPECT_EQ(reports_.delivered.size(), 1U);
  harness().mock().SetDown(false);
}

TEST_P(MockSink, TopicThatCannotBeDescribedIsUsedWithoutLimitsAndReportedOnce) {
  const std::string topic = harness().MakeTopic(1);
  for (int i = 0; i < 2; ++i) {
    Open();
    Warm(topic, 0);
    CloseAndAwait();
  }
  EXPECT_EQ(std::count(harness().notices().begin(), harness().notices().end(),
                       "kafka_topic_limits_unknown"),
            1);
}

// The mock cannot describe topics.
TEST_P(MockSink, RecordThatWaitsForLongCostsNoProducerWhereItsTopicsLimitsAreNotKnown) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().mock().SetDown(true);
  SubmitMany(topic, 1);
  Await("brokers down to be noticed", [this] { return !harness().facts().connected; });
  for (int i = 0; i < 10; ++i) {
    harness().Skip(milliseconds(2'000));  // in all below kLeadersAfter
    Poll();
  }
  EXPECT_THAT(harness().notices(), ::testing::Not(Contains("kafka_producer_replaced")));
  EXPECT_EQ(reports_.outgrown, 0);
  harness().mock().SetDown(false);
  AwaitAllDelivered();
  CloseAndAwait();
}

struct GivenLimitHarness final : MockHarness {
  GivenLimitHarness() : MockHarness(Properties{{"message.max.bytes", "5000"}}) {}
};

const SinkHarnessCase kGivenLimit{"Given", [] { return std::make_unique<GivenLimitHarness>(); }};

class GivenLimit : public SinkContract {};

INSTANTIATE_TEST_SUITE_P(Mock, GivenLimit, ::testing::Values(kGivenLimit), NameOf);

TEST_P(GivenLimit, RecordLargerThanTheUsersOwnLimitIsRejectedWithoutItsBytes) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  MakeRecord(next_, topic, 0, std::string(6'000, 'x'));
  const SubmitResult result = Offer(next_);
  EXPECT_EQ(result.outcome, Outcome::kRejected);
  EXPECT_EQ(result.failure.kind, FailureKind::kRecordTooLarge);
  EXPECT_THAT(result.failure.detail, HasSubstr("message.max.bytes, which is 5000"));
  EXPECT_EQ(result.failure.detail.find("xxxx"), std::string::npos);
  CloseAndAwait();
}

struct NoLimitHarness final : MockHarness {
  NoLimitHarness() : MockHarness(Properties{{"queue.buffering.max.messages", "0"}}) {}
};

const SinkHarnessCase kNoLimit{"NoLimit", [] { return std::make_unique<NoLimitHarness>(); }};

class NoLimit : public SinkContract {};

INSTANTIATE_TEST_SUITE_P(Mock, NoLimit, ::testing::Values(kNoLimit), NameOf);

TEST_P(NoLimit, QueueOfZeroRecordsIsOneWithoutALimit) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  CloseAndAwait();
}

struct SmallQueueHarness final : MockHarness {
  SmallQueueHarness()
      : MockHarness(
            Properties{{"message.max.bytes", "5000"}, {"queue.buffering.max.kbytes", "5"}}) {}
};

const SinkHarnessCase kSmallQueue{"SmallQueue",
                                  [] { return std::make_unique<SmallQueueHarness>(); }};

class SmallQueue : public SinkContract {};

INSTANTIATE_TEST_SUITE_P(Mock, SmallQueue, ::testing::Values(kSmallQueue), NameOf);

TEST_P(SmallQueue, RecordsThatFindItFullAreSentAfterTheNextReport) {
  const std::string topic = harness_->MakeTopic(4);
  Open();
  Warm(topic, 0);
  for (std::int32_t partition = 0; partition < 4; ++partition, ++next_) {
    MakeRecord(next_, topic, partition, std::string(3'000, 'x'));
    ASSERT_EQ(Submit(next_), Outcome::kAccepted);
  }
  AwaitAllDelivered();
  CloseAndAwait();
}

// Failure 66.
TEST_P(MockSink, TopicThatMayNotBeWrittenIsRejected) {
  const std::string topic = "forbidden";
  harness().mock().FailTopic(topic, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  Open();
  MakeRecord(0, topic, 0, "value");
  const SubmitResult result = Offer(0);
  EXPECT_EQ(result.outcome, Outcome::kRejected);
  EXPECT_EQ(result.failure.kind, FailureKind::kTopicNotAuthorized);
  CloseAndAwait();
}

TEST_P(MockSink, AnswerThatARecordMayNotBeWrittenMustLast) {
  const std::string topic = harness().MakeTopic(1);
  Open(Sink::Mode::kOneAtATime);
  Warm(topic, 0);
  for (const rd_kafka_resp_err_t error :
       {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        RD_KAFKA_RESP_ERR_INVALID_RECORD}) {
    harness().mock().FailProduce({error});
    MakeRecord(next_, topic, 0, "value");
    ASSERT_EQ(Offer(next_++).outcome, Outcome::kAccepted);
    Await("the failure", [this] { return reports_.Trouble(); });
    const delivery::Failure& failure = reports_.failed.at(0).second;
    EXPECT_TRUE(failure.must_last) << rd_kafka_err2name(error);
    EXPECT_EQ(failure.limit, 0) << "nobody answers about its limits";
    CloseAndAwait();
    Open(Sink::Mode::kOneAtATime);
  }
  CloseAndAwait();
}

// Failure 67.
TEST_P(MockSink, TopicCreatedLaterIsTakenOnceTheRejectionIsOld) {
  const std::string topic = "late";
  harness().mock().FailTopic(topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  Open();
  MakeRecord(0, topic, 0, "value");
  ASSERT_EQ(Offer(0).outcome, Outcome::kRejected);
  EXPECT_EQ(Submit(0), Outcome::kTopicPending) << "it is reported once, and then looked up again";
  ASSERT_EQ(Offer(0).outcome, Outcome::kRejected);
  harness().mock().FailTopic(topic, RD_KAFKA_RESP_ERR_NO_ERROR);
  EXPECT_EQ(Offer(0).outcome, Outcome::kAccepted);
  EXPECT_THAT(reports_.answered, ::testing::ElementsAre(topic, topic, topic));
  AwaitAllDelivered();
  CloseAndAwait();
}

TEST_P(MockSink, RejectionThatNobodyAskedForInTimeIsLookedUpAgain) {
  const std::string topic = "late";
  harness().mock().FailTopic(topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  Open();
  MakeRecord(0, topic, 0, "value");
  ASSERT_EQ(Submit(0), Outcome::kTopicPending);
  Await("the answer", [this] { return reports_.answered.size() == 1; });
  harness().mock().FailTopic(topic, RD_KAFKA_RESP_ERR_NO_ERROR);
  harness().Skip(kafka::ProducerSession::kAnswerKept);
  Poll();
  EXPECT_EQ(Submit(0), Outcome::kTopicPending);
  EXPECT_EQ(Offer(0).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
  CloseAndAwait();
}

// A producer keeps each topic that it was asked about for as long as it lives.
TEST_P(MockSink, ManyTopicsThatDoNotExistAreAskedAboutTogetherAndOthersGoOn) {
  constexpr Sequence kMissing = 600;
  std::vector<std::string> topics;
  for (Sequence i = 0; i < kMissing; ++i) {
    topics.push_back("missing-" + std::to_string(i));
    harness().mock().FailTopic(topics.back(), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  }
  const std::string good = harness().MakeTopic(1);
  Open();
  for (Sequence i = 0; i < kMissing; ++i) {
    MakeRecord(i, topics[i], 0, "value");
    ASSERT_EQ(Submit(i), Outcome::kTopicPending) << i;
  }
  MakeRecord(kMissing, good, 0, "value");
  ASSERT_EQ(Offer(kMissing).outcome, Outcome::kAccepted);
  const auto began = std::chrono::steady_clock::now();
  Await("every answer", [this] { return reports_.answered.size() > kMissing; });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  for (Sequence i = 0; i < kMissing; ++i) {
    const SubmitResult result = Offer(i);
    ASSERT_EQ(result.outcome, Outcome::kRejected) << i;
    ASSERT_EQ(result.failure.kind, FailureKind::kTopicUnknown) << i;
  }
  AwaitAllDelivered();
  CloseAndAwait();
}

TEST(TopicLookUp, ClientThatEndsWithTheQuestionShowsWhichTopicsDoNotExist) {
  MockKafka mock;
  mock.CreateTopic("good", 1);
  kafka::KafkaOptions options;
  options.name = "shop";
  options.properties = {{"bootstrap.servers", mock.bootstrap()}};
  const auto error_of = [](std::size_t i) {
    return i == 150     ? RD_KAFKA_RESP_ERR_NO_ERROR
           : i % 2 == 0 ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                        : RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
  };
  kafka::TopicQuestions questions;
  questions.each.resize(301);
  for (std::size_t i = 0; i < questions.each.size(); ++i) {
    questions.each[i].name = i == 150 ? "good" : "missing-" + std::to_string(i);
    if (i != 150) {
      mock.FailTopic(questions.each[i].name, error_of(i));
    }
  }
  kafka::TopicQuestions again = questions;
  kafka::AskWhichTopicsAreRejected(options, &questions);
  for (std::size_t i = 0; i < questions.each.size(); ++i) {
    const kafka::TopicQuestion& question = questions.each[i];
    EXPECT_EQ(question.asked, question.name != "good") << question.name;
    EXPECT_EQ(question.topic_error, error_of(i)) << question.name;
    EXPECT_FALSE(question.producer_asked) << "it would keep the topic for ever";
  }
  mock.SetDown(true);
  const auto began = std::chrono::steady_clock::now();
  kafka::AskWhichTopicsAreRejected(options, &again);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 3 * kafka::kAnswerTimeout);
  EXPECT_TRUE(std::none_of(again.each.begin(), again.each.end(),
                           [](const kafka::TopicQuestion& question) { return question.asked; }))
      << "no answer is no verdict";
}

// A broker may have forgotten the producer, and then takes any sequence.
// Failure 99.
TEST_P(MockSink, FirstRecordAfterAnIdleMinuteIsSentAlone) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  SubmitMany(topic, 2);
  AwaitAllDelivered();
  harness().Skip(delivery::PartitionGate::kKnownFor);
  Poll();
  SubmitMany(topic, 1);
  MakeRecord(next_, topic, 0, "behind it");
  ASSERT_EQ(Submit(next_++), Outcome::kAccepted);
  Await("the first", [this] { return Delivered(next_ - 2); });
  EXPECT_FALSE(Delivered(next_ - 1)) << "in a request of its own";
  SubmitMany(topic, 1);
  AwaitAllDelivered();
  EXPECT_EQ(harness().Read(topic, 0), Values(topic, 0));
  CloseAndAwait();
}

// A Poll hands it to the producer, and nothing else would wake the loop for that.
TEST_P(MockSink, RecordThatWasTakenIsADeadlineUntilTheNextPoll) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  EXPECT_GT(*sink_->NextDeadline(), harness().now().mono + milliseconds(1'000));
  SubmitMany(topic, 1);
  EXPECT_LE(*sink_->NextDeadline(), harness().now().mono);
  Poll();
  EXPECT_GT(*sink_->NextDeadline(), harness().now().mono + milliseconds(1'000));
  AwaitAllDelivered();
  CloseAndAwait();
}

// Else the loop would spin for as long as nothing else happens.
TEST_P(MockSink, LookUpThatCameLateLeavesNoDeadlineBehind) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  harness().mock().SetDown(true);
  MakeRecord(0, topic, 0, "value");
  ASSERT_EQ(Submit(0), Outcome::kTopicPending);
  Await("the look-up to fail",
        [this] { return harness().facts().last_error.find("looked up") != std::string::npos; });
  harness().mock().SetDown(false);
  ASSERT_EQ(Offer(0).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
  const auto deadline = sink_->NextDeadline();
  ASSERT_TRUE(deadline);
  EXPECT_GT(*deadline, harness().now().mono + milliseconds(1'000));
  CloseAndAwait();
}

TEST_P(MockSink, TopicsAreRefreshedAgainAfterARefreshThatFailed) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness().mock().SetDown(true);
  Await("brokers down to be noticed", [this] { return harness().facts().down; });
  // More than one, because an error of a broker may hide the one of a refresh.
  Await("a refresh to fail", [this] {
    harness().Skip(milliseconds(30'000));
    return harness().facts().last_error.find("refreshed") != std::string::npos;
  });
  harness().mock().SetDown(false);
  Await("an answer without any record", [this] {
    harness().Skip(milliseconds(30'000));
    return harness().facts().connected;
  });
  CloseAndAwait();
}

TEST_P(MockSink, EveryReportWakesTheCaller) {
  const std::string topic = harness().MakeTopic(1);
  Open();
  Warm(topic, 0);
  for (int i = 0; i < 20; ++i) {
    MakeRecord(next_, topic, 0, "value " + std::to_string(i));
    ASSERT_EQ(Submit(next_++), Outcome::kAccepted);
    Poll();  // sends it
    while (!reports_.outstanding.empty()) {
      ASSERT_TRUE(harness().AwaitWake()) << "a report waits, but nobody was woken";
      Poll();
    }
  }
  CloseAndAwait();
}

}  // namespace
}  // namespace walpost::testing
