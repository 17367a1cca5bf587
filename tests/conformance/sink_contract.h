// SinkContract - what every Sink must do, whatever is behind it.
// Why: the pipeline is tested against the fake and runs against librdkafka; both must keep the same
// promises.
// How: derive a harness, hand its factory to INSTANTIATE_TEST_SUITE_P, link sink_contract.cc.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delivery/sink.h"

namespace walpost::testing {

// A closed sink, and the Kafka behind it.
class SinkHarness {
 public:
  // Records the sink takes before it says "not now".
  static constexpr int kQueueLimit = 1'000;

  // A record whose value begins so fails when it is sent; see ArmPoison.
  static constexpr const char* kPoison = "poison";

  virtual ~SinkHarness() = default;

  virtual delivery::Sink* sink() = 0;

  virtual base::Now now() = 0;

  // Between two polls: lets Kafka answer, waits a little, or until the sink wakes its caller.
  virtual void Step() = 0;

  // A new, empty topic.
  virtual std::string MakeTopic(int partitions) = 0;

  // A topic that does not exist, for the record with this sequence.
  virtual std::string MissingTopic(delivery::Sequence sequence) = 0;

  // From now on the next poison to be sent will fail. Everything before it is delivered.
  virtual void ArmPoison() = 0;

  // What a consumer reads, oldest first.
  virtual std::vector<std::string> Read(const std::string& topic, std::int32_t partition) = 0;
};

struct SinkHarnessCase {
  const char* name;
  std::function<std::unique_ptr<SinkHarness>()> make;

  friend void PrintTo(const SinkHarnessCase& tested, std::ostream* out) { *out << tested.name; }
};

// What the sink reported, in order.
struct SinkReports final : delivery::SinkListener {
  delivery::Sequence ReceivedBelow() const override { return delivery::kFirstOwnSequence; }

  void OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) override;
  void OnFailed(delivery::Sequence sequence, const delivery::Failure& failure) override;
  void OnSessionFailed(const delivery::Failure& failure) override;

  void OnProducerOutgrown() override { ++outgrown; }

  void OnTopicAnswered(std::string_view topic, bool /*known*/) override {
    answered.emplace_back(topic);
  }

  void OnClosed() override;

  bool Trouble() const { return !failed.empty() || session_failures > 0; }

  std::vector<delivery::Sequence> delivered;                             // over all sessions
  std::map<delivery::Sequence, delivery::PartitionOffset> places;        // of these
  std::vector<std::pair<delivery::Sequence, delivery::Failure>> failed;  // of this session
  std::set<delivery::Sequence> outstanding;
  std::vector<std::string> answered;  // topics
  int session_failures = 0;
  int outgrown = 0;
  int closed = 0;
};

class SinkContract : public ::testing::TestWithParam<SinkHarnessCase> {
 protected:
  void SetUp() override;
  void TearDown() override;

  void Open(delivery::Sink::Mode mode = delivery::Sink::Mode::kPipelined);
  // Up to OnClosed.
  void CloseAndAwait();
  // When the producer is outgrown.
  void Reopen();
  // Steps and polls until `condition`, or fails the test after a long time.
  void Await(const char* what, const std::function<bool()>& condition);
  void AwaitAllDelivered();
  void Poll();

  // The record for `sequence`, made on first use.
  const envelope::Record& MakeRecord(delivery::Sequence sequence, const std::string& topic,
                                     std::int32_t partition, const std::string& value);
  delivery::SubmitResult::Outcome Submit(delivery::Sequence sequence);
  // Until it is neither kNotNow nor kTopicPending any more.
  delivery::SubmitResult Offer(delivery::Sequence sequence);
  // One record, up to its good report: from here on the partition takes many at a time.
  void Warm(const std::string& topic, std::int32_t partition);

  bool Delivered(delivery::Sequence sequence) const;
  std::vector<std::string> Values(const std::string& topic, std::int32_t partition) const;

  std::unique_ptr<SinkHarness> harness_;
  delivery::Sink* sink_ = nullptr;
  SinkReports reports_;
  delivery::Sequence next_ = 0;
  std::chrono::steady_clock::duration longest_call_{};

 private:
  struct Kept {
    std::string topic;
    std::string value;
    envelope::Record record;
  };

  template <typename Call>
  auto Timed(Call call);

  std::map<delivery::Sequence, std::unique_ptr<Kept>> records_;
};

}  // namespace walpost::testing
