// The sink contract on a real Kafka: WALPOST_TEST_KAFKA=host:port, which must not create topics by
// itself. Topics of one run have names of their own and stay behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/kafka_sink_harness.h"

namespace walpost::testing {
namespace {

using delivery::FailureKind;
using delivery::Sequence;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = delivery::SubmitResult::Outcome;

constexpr int kTimeoutMs = 30'000;
// Of every topic here; a poison record is larger.
constexpr const char* kMessageBytesMax = "10000";

// Missing is a failure, not a skip: a contract that nobody ran is no contract.
std::string BootstrapOrDie() {
  const char* given = std::getenv("WALPOST_TEST_KAFKA");
  if (given == nullptr || *given == '\0') {
    ADD_FAILURE() << "WALPOST_TEST_KAFKA=host:port must name a Kafka for this test";
    return "";
  }
  return given;
}

// "" when it worked.
std::string CreateTopic(const std::string& bootstrap, const std::string& name, int partitions) {
  std::array<char, 512> error{};
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap.c_str(), error.data(), error.size());
  const std::unique_ptr<rd_kafka_t, void (*)(rd_kafka_t*)> client(
      rd_kafka_new(RD_KAFKA_PRODUCER, conf, error.data(), error.size()), rd_kafka_destroy);
  if (client == nullptr) {
    return error.data();
  }
  const std::unique_ptr<rd_kafka_queue_t, void (*)(rd_kafka_queue_t*)> queue(
      rd_kafka_queue_new(client.get()), rd_kafka_queue_destroy);
  rd_kafka_NewTopic_t* topic =
      rd_kafka_NewTopic_new(name.c_str(), partitions, 1, error.data(), error.size());
  rd_kafka_NewTopic_set_config(topic, "max.message.bytes", kMessageBytesMax);
  rd_kafka_CreateTopics(client.get(), &topic, 1, nullptr, queue.get());
  rd_kafka_NewTopic_destroy(topic);
  const std::unique_ptr<rd_kafka_event_t, void (*)(rd_kafka_event_t*)> event(
      rd_kafka_queue_poll(queue.get(), kTimeoutMs), rd_kafka_event_destroy);
  if (event == nullptr) {
    return "no answer from " + bootstrap;
  }
  if (rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return rd_kafka_event_error_string(event.get());
  }
  std::size_t count = 0;
  const rd_kafka_topic_result_t** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
  const char* refusal = rd_kafka_topic_result_error_string(results[0]);
  return refusal == nullptr ? "" : refusal;
}

class RealHarness final : public KafkaSinkHarness {
 public:
  explicit RealHarness(std::string bootstrap, Properties more = {})
      : KafkaSinkHarness(std::move(bootstrap), std::move(more)) {}

  std::string MakeTopic(int partitions) override {
    const std::string topic = NewName("walpost-contract");
    EXPECT_EQ(CreateTopic(bootstrap(), topic, partitions), "");
    return topic;
  }

  std::string MissingTopic(Sequence /*sequence*/) override { return NewName("missing"); }

  void ArmPoison() override {}  // it is larger than the topic takes
};

const SinkHarnessCase kReal{
    "Kafka", []() -> std::unique_ptr<SinkHarness> {
      std::string bootstrap = BootstrapOrDie();
      if (bootstrap.empty()) {
        return nullptr;
      }
      // Random bytes would do as well; batches must not shrink.
      return std::make_unique<RealHarness>(
          std::move(bootstrap),
          KafkaSinkHarness::Properties{{"compression.type", "none"}, {"batch.size", "9000"}});
    }};

std::string NameOf(const ::testing::TestParamInfo<SinkHarnessCase>& tested) {
  return tested.param.name;
}

INSTANTIATE_TEST_SUITE_P(Real, SinkContract, ::testing::Values(kReal), NameOf);

// What only a real broker judges; the contract's helpers serve here too.
class RealSink : public SinkContract {};

INSTANTIATE_TEST_SUITE_P(Real, RealSink, ::testing::Values(kReal), NameOf);

TEST_P(RealSink, OneOversizedRecordFailsItsBatchAndCarefulFindsIt) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
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
  Open(delivery::Sink::Mode::kCareful);
  for (Sequence sequence = first; sequence < next_; ++sequence) {
    if (Delivered(sequence)) {
      continue;
    }
    ASSERT_EQ(Offer(sequence).outcome, Outcome::kAccepted);
    Await("its report", [this] { return reports_.outstanding.empty(); });
    if (reports_.Trouble()) {
      ASSERT_EQ(reports_.failed.size(), 1U);
      EXPECT_EQ(reports_.failed[0].second.kind, FailureKind::kRecordTooLarge);
      guilty.push_back(reports_.failed[0].first);
      CloseAndAwait();
      Open(delivery::Sink::Mode::kCareful);
    }
  }
  EXPECT_EQ(guilty, std::vector<Sequence>{culprit});
  std::vector<std::string> expected = Values(topic, 0);
  expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(culprit));
  EXPECT_EQ(harness_->Read(topic, 0), expected);
  CloseAndAwait();
}

TEST_P(RealSink, TimestampFarAheadIsAnInvalidRecord) {
  const std::string topic = harness_->MakeTopic(1);
  Open(delivery::Sink::Mode::kCareful);
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
  Await("the failure", [this] { return reports_.Trouble(); });
  ASSERT_EQ(reports_.failed.size(), 1U);
  EXPECT_EQ(reports_.failed[0].second.kind, FailureKind::kRecordInvalid);
  EXPECT_THAT(reports_.failed[0].second.detail, HasSubstr(topic));
  CloseAndAwait();
}

}  // namespace
}  // namespace walpost::testing
