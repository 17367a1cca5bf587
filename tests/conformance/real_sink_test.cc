// The sink contract on a real Kafka: WALPOST_TEST_KAFKA=host:port, which must not create topics by
// itself. Topics of one run have names of their own and stay behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "conformance/kafka_sink_harness.h"
#include "kafka/topic_limits.h"

namespace walpost::testing {
namespace {

using delivery::FailureKind;
using delivery::Sequence;
using delivery::SubmitResult;
using ::testing::HasSubstr;
using Outcome = delivery::SubmitResult::Outcome;

constexpr int kTimeoutMs = 30'000;
// Of a topic that is armed; a poison record is larger.
constexpr const char* kMessageBytesMax = "10000";

using Client = std::unique_ptr<rd_kafka_t, void (*)(rd_kafka_t*)>;
using Queue = std::unique_ptr<rd_kafka_queue_t, void (*)(rd_kafka_queue_t*)>;
using Event = std::unique_ptr<rd_kafka_event_t, void (*)(rd_kafka_event_t*)>;

// Missing is a failure, not a skip: a contract that nobody ran is no contract.
std::string BootstrapOrDie() {
  const char* given = std::getenv("WALPOST_TEST_KAFKA");
  if (given == nullptr || *given == '\0') {
    ADD_FAILURE() << "WALPOST_TEST_KAFKA=host:port must name a Kafka for this test";
    return "";
  }
  return given;
}

Client NewClient(const std::string& bootstrap) {
  std::array<char, 512> error{};
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap.c_str(), error.data(), error.size());
  return Client(rd_kafka_new(RD_KAFKA_PRODUCER, conf, error.data(), error.size()),
                rd_kafka_destroy);
}

// What brokers learn from each other cannot be waited for: they are asked until they know.
template <typename Condition>
bool WithinTheTimeout(const Condition& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  do {
    if (holds()) {
      return true;
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

// "" when it worked.
std::string CreateTopic(const std::string& bootstrap, const std::string& name, int partitions) {
  const Client client = NewClient(bootstrap);
  const Queue queue(rd_kafka_queue_new(client.get()), rd_kafka_queue_destroy);
  std::array<char, 512> error{};
  rd_kafka_NewTopic_t* topic =
      rd_kafka_NewTopic_new(name.c_str(), partitions, 1, error.data(), error.size());
  rd_kafka_CreateTopics(client.get(), &topic, 1, nullptr, queue.get());
  rd_kafka_NewTopic_destroy(topic);
  const Event event(rd_kafka_queue_poll(queue.get(), kTimeoutMs), rd_kafka_event_destroy);
  if (event == nullptr) {
    return "no answer from " + bootstrap;
  }
  if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return rd_kafka_event_error_string(event.get());
  }
  std::size_t count = 0;
  const rd_kafka_topic_result_t** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
  const char* rejection = rd_kafka_topic_result_error_string(results[0]);
  if (rejection != nullptr) {
    return rejection;
  }
  // The broker learns of it after the controller has answered; a sink that asks before rejects.
  const bool known = WithinTheTimeout([&] {
    return kafka::ReadTopicLimits(client.get(), name, std::chrono::milliseconds(kTimeoutMs)).ok();
  });
  return known ? "" : "no broker knows it";
}

// "" when it worked.
std::string AlterTopic(const std::string& bootstrap, const std::string& name, const char* bytes,
                       std::chrono::milliseconds retention) {
  const Client client = NewClient(bootstrap);
  const Queue queue(rd_kafka_queue_new(client.get()), rd_kafka_queue_destroy);
  rd_kafka_ConfigResource_t* topic =
      rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, name.c_str());
  rd_kafka_ConfigResource_set_config(topic, "max.message.bytes", bytes);
  rd_kafka_ConfigResource_set_config(topic, "retention.ms",
                                     std::to_string(retention.count()).c_str());
  rd_kafka_AlterConfigs(client.get(), &topic, 1, nullptr, queue.get());
  rd_kafka_ConfigResource_destroy(topic);
  const Event event(rd_kafka_queue_poll(queue.get(), kTimeoutMs), rd_kafka_event_destroy);
  if (event == nullptr) {
    return "no answer from " + bootstrap;
  }
  std::size_t count = 0;
  const rd_kafka_ConfigResource_t** results = rd_kafka_AlterConfigs_result_resources(
      rd_kafka_event_AlterConfigs_result(event.get()), &count);
  if (count != 1) {
    return rd_kafka_event_error_string(event.get());
  }
  const char* rejection = rd_kafka_ConfigResource_error_string(results[0]);
  if (rejection != nullptr) {
    return rejection;
  }
  // The broker learns of it from its own log of changes.
  const bool changed = WithinTheTimeout([&] {
    const absl::StatusOr<kafka::TopicLimits> limits =
        kafka::ReadTopicLimits(client.get(), name, std::chrono::milliseconds(kTimeoutMs));
    return limits.ok() && std::to_string(limits->message_bytes_max.value_or(0)) == bytes &&
           limits->retention == retention;
  });
  return changed ? "" : "the change has no effect";
}

// A broker shows a change before it obeys, but begins the next one only when the last is done.
std::string SetMessageBytesMax(const std::string& bootstrap, const std::string& name,
                               const char* bytes) {
  for (const int days : {10'000, 10'001}) {
    if (std::string problem = AlterTopic(bootstrap, name, bytes, std::chrono::hours(24) * days);
        !problem.empty()) {
      return problem;
    }
  }
  return "";
}

class RealHarness final : public KafkaSinkHarness {
 public:
  explicit RealHarness(std::string bootstrap, Properties more = {})
      : KafkaSinkHarness(std::move(bootstrap), std::move(more)) {}

  std::string MakeTopic(int partitions) override {
    const std::string topic = NewName("walpost-contract");
    EXPECT_EQ(CreateTopic(bootstrap(), topic, partitions), "");
    return newest_ = topic;
  }

  std::string MissingTopic(Sequence /*sequence*/) override { return NewName("missing"); }

  // Behind the sink's back: what it knew before, it rejects by itself.
  void ArmPoison() override {
    EXPECT_EQ(SetMessageBytesMax(bootstrap(), newest_, kMessageBytesMax), "");
  }

 private:
  std::string newest_;
};

std::unique_ptr<SinkHarness> MakeReal(const char* compression) {
  std::string bootstrap = BootstrapOrDie();
  if (bootstrap.empty()) {
    return nullptr;
  }
  return std::make_unique<RealHarness>(
      std::move(bootstrap),
      KafkaSinkHarness::Properties{{"compression.type", compression}, {"batch.size", "9000"}});
}

const SinkHarnessCase kReal{"Kafka", [] { return MakeReal("none"); }};
// With compression nothing is rejected before the broker has seen it.
const SinkHarnessCase kCompressing{"Compressing", [] { return MakeReal("lz4"); }};

std::string NameOf(const ::testing::TestParamInfo<SinkHarnessCase>& tested) {
  return tested.param.name;
}

INSTANTIATE_TEST_SUITE_P(Real, SinkContract, ::testing::Values(kReal), NameOf);

// What only a real broker judges; the contract's helpers serve here too.
class RealSink : public SinkContract {
 protected:
  RealHarness& harness() { return static_cast<RealHarness&>(*harness_); }

  // A record that the broker measures as so many bytes, of values that cannot be compressed.
  envelope::Record RecordOf(std::int64_t bytes, const std::string& topic) {
    static constexpr std::array<envelope::RecordHeader, 2> kHeaders = {
        envelope::RecordHeader{"id", "7"}, envelope::RecordHeader{"empty", ""}};
    std::mt19937 random(7);
    value_.resize(static_cast<std::size_t>(bytes) - 100);
    std::generate(value_.begin(), value_.end(), [&] { return static_cast<char>(random()); });
    envelope::Record record;
    record.topic = topic;
    record.key = "some key";
    record.value = value_;
    record.headers = kHeaders;
    record.partition = 0;
    value_.resize(value_.size() + static_cast<std::size_t>(bytes - kafka::BatchBytesOf(record)));
    record.value = value_;
    EXPECT_EQ(kafka::BatchBytesOf(record), bytes);
    return record;
  }

  SubmitResult OfferRecord(const envelope::Record& record) {
    SubmitResult result;
    Await("the record to be taken", [&] {
      result = sink_->Submit(record, next_);
      return result.outcome != Outcome::kNotNow && result.outcome != Outcome::kTopicPending;
    });
    if (result.outcome == Outcome::kAccepted) {
      reports_.outstanding.insert(next_++);
    }
    return result;
  }

  std::string value_;
};

class CompressingSink : public RealSink {};

INSTANTIATE_TEST_SUITE_P(Real, CompressingSink, ::testing::Values(kCompressing), NameOf);

TEST_P(RealSink, RecordOfExactlyTheTopicsLimitIsDeliveredAndOneByteMoreIsRejected) {
  const std::string topic = harness_->MakeTopic(1);
  harness_->ArmPoison();
  Open();
  EXPECT_EQ(OfferRecord(RecordOf(10'000, topic)).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
  const SubmitResult rejected = OfferRecord(RecordOf(10'001, topic));
  EXPECT_EQ(rejected.outcome, Outcome::kRejected);
  EXPECT_EQ(rejected.failure.kind, FailureKind::kRecordTooLarge);
  EXPECT_THAT(rejected.failure.detail, HasSubstr("10001 bytes"));
  EXPECT_THAT(rejected.failure.detail, HasSubstr("max.message.bytes, which is 10000"));
  EXPECT_FALSE(reports_.Trouble());
  CloseAndAwait();
}

// Whoever writes such records now and then must not hold the topic each time.
TEST_P(RealSink, RecordThatIsTooLargeAgainIsRejectedSoonAfterTheAnswerWasForgotten) {
  const std::string topic = harness_->MakeTopic(1);
  harness_->ArmPoison();
  Open();
  ASSERT_EQ(OfferRecord(RecordOf(10'001, topic)).outcome, Outcome::kRejected);
  static_cast<KafkaSinkHarness&>(*harness_).Skip(std::chrono::milliseconds(20'000));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(OfferRecord(RecordOf(10'001, topic)).outcome, Outcome::kRejected);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  CloseAndAwait();
}

// The same by the broker itself: nothing is rejected that it would take, or the other way round.
TEST_P(CompressingSink, BrokerDrawsTheSameLine) {
  const std::string topic = harness_->MakeTopic(1);
  harness_->ArmPoison();
  Open(delivery::Sink::Mode::kOneAtATime);
  EXPECT_EQ(OfferRecord(RecordOf(10'000, topic)).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
  EXPECT_EQ(OfferRecord(RecordOf(10'001, topic)).outcome, Outcome::kAccepted);
  Await("the failure", [this] { return reports_.Trouble(); });
  EXPECT_EQ(reports_.failed.at(0).second.kind, FailureKind::kRecordTooLarge);
  EXPECT_TRUE(reports_.failed.at(0).second.must_last) << "nobody else knows its packed size";
  EXPECT_EQ(reports_.failed.at(0).second.limit, 10'000);
  CloseAndAwait();
}

// As when its leader has not heard that the limit was raised.
TEST_P(RealSink, RejectionThatTheLimitsContradictMustLast) {
  const std::string topic = harness_->MakeTopic(1);
  Open(delivery::Sink::Mode::kOneAtATime);
  Warm(topic, 0);
  harness_->ArmPoison();
  ASSERT_EQ(OfferRecord(RecordOf(10'001, topic)).outcome, Outcome::kAccepted);
  Await("the failure", [this] { return reports_.Trouble(); });
  EXPECT_EQ(reports_.failed.at(0).second.kind, FailureKind::kRecordTooLarge);
  EXPECT_TRUE(reports_.failed.at(0).second.must_last);
  EXPECT_EQ(reports_.failed.at(0).second.limit, 1'048'588) << "as it was read before";
  CloseAndAwait();
}

// More than are asked about one by one.
TEST_P(RealSink, ManyTopicsThatDoNotExistAreRejectedAndAGoodOneIsFoundAmongThem) {
  constexpr Sequence kMany = 1'000;
  const std::string topic = harness().MakeTopic(1);
  const std::string prefix = harness().MissingTopic(0) + "-";
  Open();
  for (Sequence i = 0; i < kMany; ++i) {
    MakeRecord(i, prefix + std::to_string(i), 0, "value");
    ASSERT_EQ(Submit(i), Outcome::kTopicPending);
  }
  MakeRecord(kMany, topic, 0, "good");
  ASSERT_EQ(Submit(kMany), Outcome::kTopicPending);
  std::size_t seen = 0;
  Await("all answers", [&] {
    for (; seen < reports_.answered.size(); ++seen) {  // while they are fresh
      const std::string& name = reports_.answered[seen];
      const bool good = name == topic;
      EXPECT_EQ(Submit(good ? kMany : std::stoul(name.substr(prefix.size()))),
                good ? Outcome::kAccepted : Outcome::kRejected)
          << name;
    }
    return seen > kMany;
  });
  AwaitAllDelivered();
  CloseAndAwait();
}

TEST_P(RealSink, LimitThatWasRaisedIsNoticedBeforeARecordIsRejected) {
  const std::string topic = harness_->MakeTopic(1);
  harness_->ArmPoison();
  Open();
  Warm(topic, 0);
  EXPECT_EQ(SetMessageBytesMax(harness().bootstrap(), topic, "3000000"), "");
  harness().Skip(std::chrono::milliseconds(5'000));
  Poll();
  const envelope::Record record = RecordOf(2'900'000, topic);
  Await("a look-up", [&] { return sink_->Submit(record, next_).outcome == Outcome::kNotNow; });
  Reopen();
  EXPECT_EQ(OfferRecord(record).outcome, Outcome::kAccepted);
  AwaitAllDelivered();
  CloseAndAwait();
}

TEST_P(RealSink, TopicThatTakesLessThanABatchGetsSmallerBatchesAndNothingFails) {
  const std::string large = harness_->MakeTopic(1);
  const std::string small = harness_->MakeTopic(1);
  EXPECT_EQ(SetMessageBytesMax(harness().bootstrap(), small, "2000"), "");
  Open();
  Warm(large, 0);
  for (int i = 0; i < 2'000; ++i, ++next_) {
    MakeRecord(next_, i % 4 == 0 ? large : small, 0, "value " + std::to_string(i));
    ASSERT_EQ(Offer(next_).outcome, Outcome::kAccepted);
  }
  AwaitAllDelivered();
  EXPECT_FALSE(reports_.Trouble());
  EXPECT_EQ(reports_.outgrown, 0) << "the other topic's batches stay as large as they were";
  EXPECT_EQ(harness_->Read(small, 0), Values(small, 0));
  EXPECT_EQ(harness_->Read(large, 0), Values(large, 0));
  CloseAndAwait();
}

INSTANTIATE_TEST_SUITE_P(Real, RealSink, ::testing::Values(kReal), NameOf);

// Failure 69.
TEST_P(RealSink, OneOversizedRecordFailsItsBatchAndCarefulFindsIt) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  harness_->ArmPoison();
  const Sequence first = next_;
  const Sequence culprit = first + 5;
  for (; next_ < first + 10; ++next_) {
    const std::string text = next_ == culprit ? std::string(20'000, 'x') : "small";
    MakeRecord(next_, topic, 0, std::to_string(next_) + " " + text);
    ASSERT_EQ(Submit(next_), Outcome::kAccepted);
  }
  Await("the failure", [this] { return reports_.Trouble(); });
  CloseAndAwait();
  std::vector<Sequence> guilty;
  Open(delivery::Sink::Mode::kOneAtATime);
  for (Sequence sequence = first; sequence < next_; ++sequence) {
    if (Delivered(sequence)) {
      continue;
    }
    const SubmitResult result = Offer(sequence);  // the new look-up has found the limit
    if (result.outcome == Outcome::kRejected) {
      EXPECT_EQ(result.failure.kind, FailureKind::kRecordTooLarge);
      guilty.push_back(sequence);
    }
    AwaitAllDelivered();
  }
  EXPECT_EQ(guilty, std::vector<Sequence>{culprit});
  std::vector<std::string> expected = Values(topic, 0);
  expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(culprit));
  EXPECT_EQ(harness_->Read(topic, 0), expected);
  CloseAndAwait();
}

// A broker rejects the whole batch of a record that is dated more than an hour ahead.
TEST_P(RealSink, TimestampFarAheadIsDeliveredAsOfNow) {
  const std::string topic = harness_->MakeTopic(1);
  Open(delivery::Sink::Mode::kOneAtATime);
  const std::string value = "from the future";
  envelope::Record record;
  record.topic = topic;
  record.value = value;
  record.partition = 0;
  record.timestamp_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count() +
                        86'400'000;
  Await("room", [&] { return sink_->Submit(record, 0).outcome == Outcome::kAccepted; });
  reports_.outstanding.insert(0);
  AwaitAllDelivered();
  CloseAndAwait();
}

}  // namespace
}  // namespace walpost::testing
