// A producer that takes for ever to end must not hold up the loop.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "conformance/kafka_sink_harness.h"
#include "support/mock_kafka.h"

namespace walpost::testing {
namespace {

// The plugin's side, in slow_destroy_plugin.cc.
class SlowDestroys {
 public:
  SlowDestroys() : plugin_(dlopen(WALPOST_SLOW_DESTROY_PLUGIN, RTLD_NOW)) {
    if (plugin_ != nullptr) {
      hold_ = Symbol<void (*)(bool)>("HoldDestroys");
      waiting_ = Symbol<int (*)()>("WaitingDestroys");
    }
  }

  ~SlowDestroys() {
    if (hold_ != nullptr) {
      hold_(false);  // the plugin stays loaded: producers may still be in it
    }
  }

  bool usable() const { return hold_ != nullptr && waiting_ != nullptr; }

  void Hold(bool hold) const { hold_(hold); }

  int waiting() const { return waiting_(); }

 private:
  template <typename Function>
  Function Symbol(const char* name) const {
    return reinterpret_cast<Function>(dlsym(plugin_, name));
  }

  void* plugin_;
  void (*hold_)(bool) = nullptr;
  int (*waiting_)() = nullptr;
};

class SlowHarness final : public KafkaSinkHarness {
 public:
  explicit SlowHarness(MockKafka* mock)
      : KafkaSinkHarness(mock->bootstrap(),
                         {{"plugin.library.paths", WALPOST_SLOW_DESTROY_PLUGIN}}),
        mock_(mock) {}

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

struct SlowParts {
  MockKafka mock;
  SlowDestroys destroys;
};

SlowParts* parts = nullptr;  // of the running test

class SlowDestroyTest : public SinkContract {
 protected:
  void SetUp() override {
    parts_ = std::make_unique<SlowParts>();
    ASSERT_TRUE(parts_->destroys.usable()) << dlerror();
    parts = parts_.get();
    SinkContract::SetUp();
  }

  void TearDown() override {
    parts_->destroys.Hold(false);
    SinkContract::TearDown();  // sees how long the longest call took
    parts_.reset();
  }

  std::unique_ptr<SlowParts> parts_;
};

INSTANTIATE_TEST_SUITE_P(Mock, SlowDestroyTest,
                         ::testing::Values(SinkHarnessCase{
                             "Mock", [] { return std::make_unique<SlowHarness>(&parts->mock); }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(SlowDestroyTest, NextGenerationDeliversWhileTheLastOneIsStillEnding) {
  const std::string topic = harness_->MakeTopic(1);
  Open();
  Warm(topic, 0);
  parts_->destroys.Hold(true);
  CloseAndAwait();
  Open(delivery::Sink::Mode::kCareful);
  Warm(topic, 0);
  Await("the first producer to be held", [this] { return parts_->destroys.waiting() > 0; });
  EXPECT_EQ(reports_.delivered.size(), 2U);
  parts_->destroys.Hold(false);
  CloseAndAwait();
}

}  // namespace
}  // namespace walpost::testing
