#include "conformance/kafka_sink_harness.h"

#include <glog/logging.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <random>

#include "support/mock_kafka.h"

namespace walpost::testing {

using std::chrono::milliseconds;

namespace {

// Bounds a wait when nothing wakes us: librdkafka's time-outs do.
constexpr milliseconds kStepMax{100};

}  // namespace

KafkaSinkHarness::KafkaSinkHarness(std::string bootstrap, Properties more,
                                   kafka::KafkaOptions options)
    : bootstrap_(std::move(bootstrap)), options_(std::move(options)) {
  options_.properties = {{"bootstrap.servers", bootstrap_},
                         {"queue.buffering.max.messages", std::to_string(kQueueLimit)}};
  options_.properties.insert(options_.properties.end(), more.begin(), more.end());
  auto sink =
      kafka::KafkaSink::Create(options_, helper_.RunnerOf(runtime::Helper::Queue::kKafka),
                               [this](const kafka::KafkaNotice& notice) {
                                 notices_.emplace_back(base::LogEventName(notice.event));
                                 if (notice.severity == kafka::KafkaNotice::Severity::kWarning) {
                                   warnings_.push_back(notice.message);
                                 }
                               });
  CHECK(sink.ok()) << sink.status();
  sink_ = *std::move(sink);
}

base::Now KafkaSinkHarness::now() {
  return base::Now{
      std::chrono::steady_clock::now() + skipped_,
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now())};
}

void KafkaSinkHarness::Step() {
  const auto until = sink_->NextDeadline().value_or(base::MonotonicTime::max());
  const auto wait = std::clamp(
      std::chrono::ceil<milliseconds>(std::min(until, now().mono + kStepMax) - now().mono),
      milliseconds(0), kStepMax);
  std::array<pollfd, 2> descriptors = {pollfd{sink_->wake_fd(), POLLIN, 0},
                                       pollfd{helper_.fd(), POLLIN, 0}};
  poll(descriptors.data(), descriptors.size(), static_cast<int>(wait.count()));
  helper_.RunDone();
}

bool KafkaSinkHarness::AwaitWake() const {
  pollfd descriptor{sink_->wake_fd(), POLLIN, 0};
  return poll(&descriptor, 1, 30'000) == 1;
}

std::vector<std::string> KafkaSinkHarness::Read(const std::string& topic, std::int32_t partition) {
  return ReadPartition(bootstrap_, topic, partition);
}

std::string KafkaSinkHarness::NewName(const std::string& what) {
  static const unsigned run = std::random_device()();
  static int next = 0;
  return what + "-" + std::to_string(run) + "-" + std::to_string(next++);
}

}  // namespace walpost::testing
