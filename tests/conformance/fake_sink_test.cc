// The sink contract on the fake, and the mistakes of a caller that only the fake notices.
#include "support/fake_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/sink_contract.h"

namespace walpost::testing {
namespace {

using delivery::Failure;
using delivery::FailureKind;
using delivery::Sequence;

class FakeHarness final : public SinkHarness {
 public:
  FakeHarness() { sink_.SetCapacity(kQueueLimit); }

  delivery::Sink* sink() override { return &sink_; }

  base::Now now() override { return base::Now(); }

  // Kafka's part.
  void Step() override {
    for (const Sequence sequence : sink_.outstanding()) {
      const auto accepted = std::find_if(
          sink_.session().accepted.begin(), sink_.session().accepted.end(),
          [sequence](const FakeSink::Submission& each) { return each.sequence == sequence; });
      if (blocked_.contains(accepted->partition)) {
        continue;
      }
      if (armed_ && accepted->value && accepted->value->starts_with(kPoison)) {
        sink_.Fail(sequence, FailureKind::kRecordTooLarge);
        blocked_.insert(accepted->partition);
      } else {
        sink_.Deliver(sequence);
      }
    }
  }

  std::string MakeTopic(int partitions) override {
    EXPECT_LE(partitions, FakeSink::kPartitions);
    return "topic";
  }

  std::string MissingTopic(Sequence sequence) override {
    sink_.Reject(sequence, Failure{FailureKind::kTopicUnknown, "no such topic"});
    return "missing";
  }

  void ArmPoison() override { armed_ = true; }

  std::vector<std::string> Read(const std::string& topic, std::int32_t partition) override {
    std::vector<std::string> values;
    for (const FakeSink::Submission& each : sink_.Log(topic, partition)) {
      values.push_back(each.value.value_or("(null)"));
    }
    return values;
  }

 private:
  FakeSink sink_;
  bool armed_ = false;
  std::set<std::int32_t> blocked_;
};

INSTANTIATE_TEST_SUITE_P(Fake, SinkContract,
                         ::testing::Values(SinkHarnessCase{
                             "Fake", [] { return std::make_unique<FakeHarness>(); }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

class FakeSinkDeathTest : public ::testing::Test {
 protected:
  // Two records of one partition.
  void SubmitTwo() {
    for (const Sequence sequence : {0U, 1U}) {
      envelope::Record record;
      record.topic = "topic";
      record.value = std::string_view(bytes_[sequence]);
      ASSERT_EQ(sink_.Submit(record, sequence).outcome, delivery::SubmitResult::Outcome::kAccepted);
    }
  }

  std::string bytes_[2] = {"zero", "one"};
  FakeSink sink_;
  SinkReports reports_;
};

TEST_F(FakeSinkDeathTest, CallsOutOfTurnAreFatal) {
  EXPECT_DEATH(sink_.Close(), "closed");
  EXPECT_DEATH(SubmitTwo(), "closed");
  sink_.Open(delivery::Sink::Mode::kPipelined);
  EXPECT_DEATH(sink_.Open(delivery::Sink::Mode::kPipelined), "open");
}

TEST_F(FakeSinkDeathTest, BytesThatChangeBeforeTheirReportAreFatal) {
  sink_.Open(delivery::Sink::Mode::kPipelined);
  SubmitTwo();
  sink_.Deliver(0);
  bytes_[0] = "nil!";
  EXPECT_DEATH(sink_.Poll(base::Now(), &reports_), "bytes of record 0 changed");
}

TEST_F(FakeSinkDeathTest, OrderNoKafkaProducesIsFatal) {
  sink_.Open(delivery::Sink::Mode::kPipelined);
  SubmitTwo();
  sink_.Deliver(1);
  EXPECT_DEATH(sink_.Poll(base::Now(), &reports_), "record 1 would overtake 0");
}

}  // namespace
}  // namespace walpost::testing
