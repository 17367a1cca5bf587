// A producer that takes for ever to end must not hold up the loop.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "conformance/kafka_sink_harness.h"
#include "support/mock_kafka.h"

namespace walpost::testing {
namespace {

// Producers do not end while they are held, for at most 20 s: a stand-in for a name server or
// broker that keeps librdkafka waiting.
class SlowDestroys {
 public:
  void Hold(bool hold) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = hold;
    changed_.notify_all();
  }

  int waiting() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_;
  }

  void OnDestroy() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return !held_; });
    --waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int waiting_ = 0;
};

SlowDestroys& Destroys() {
  static auto* const destroys = new SlowDestroys;  // producers may outlive the test
  return *destroys;
}

class SlowHarness final : public KafkaSinkHarness {
 public:
  explicit SlowHarness(MockKafka* mock) : KafkaSinkHarness(mock->bootstrap(), {}), mock_(mock) {}

  std::string MakeTopic(int partitions) override {
    const std::string topic = NewName("topic");
    mock_->CreateTopic(topic, partitions);
    return topic;
  }

  std::string MissingTopic(delivery::Sequence /*sequence*/) override { return "missing"; }

  void ArmPoison() override {}

 private:
  MockKafka* const mock_;
};

MockKafka* mock_kafka = nullptr;  // of the running test

class SlowDestroyTest : public SinkContract {
 protected:
  void SetUp() override {
    mock_ = std::make_unique<MockKafka>();
    mock_kafka = mock_.get();
    SinkContract::SetUp();
  }

  void TearDown() override {
    Destroys().Hold(false);
    SinkContract::TearDown();  // sees how long the longest call took
    mock_.reset();
  }

  std::unique_ptr<MockKafka> mock_;
};

INSTANTIATE_TEST_SUITE_P(Mock, SlowDestroyTest,
                         ::testing::Values(SinkHarnessCase{
                             "Mock", [] { return std::make_unique<SlowHarness>(mock_kafka); }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(SlowDestroyTest, NextSessionDeliversWhileTheLastOneIsStillEnding) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  Destroys().Hold(true);
  CloseAndAwait();
  Open(delivery::Sink::Mode::kOneAtATime);
  Warm(topic, 0);
  Await("the first producer to be held", [this] { return Destroys().waiting() > 0; });
  EXPECT_EQ(reports_.delivered.size(), 2U);
  Destroys().Hold(false);
  CloseAndAwait();
}

}  // namespace

void OnDestroy() { Destroys().OnDestroy(); }

}  // namespace walpost::testing

// In place of librdkafka's, for this whole program.
extern "C" void rd_kafka_destroy_flags(rd_kafka_t* client, int flags) {
  using Destroy = void (*)(rd_kafka_t*, int);
  static const auto destroy = reinterpret_cast<Destroy>(dlsym(RTLD_NEXT, "rd_kafka_destroy_flags"));
  walpost::testing::OnDestroy();
  destroy(client, flags);
}
