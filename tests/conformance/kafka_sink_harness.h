// KafkaSinkHarness - a KafkaSink with a helper thread of its own, on the real clock; what is behind
// it, a subclass says.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/sink_contract.h"
#include "kafka/kafka_sink.h"
#include "runtime/helper.h"

namespace walpost::testing {

class KafkaSinkHarness : public SinkHarness {
 public:
  using Properties = std::vector<std::pair<std::string, std::string>>;

  explicit KafkaSinkHarness(std::string bootstrap, Properties more = {},
                            kafka::KafkaOptions options = {});

  delivery::Sink* sink() override { return sink_.get(); }

  // The real clock, put forward by what Skip was given.
  base::Now now() override;

  void Skip(std::chrono::milliseconds time) { skipped_ += time; }

  // Waits for the sink's descriptor or the helper, as the loop does.
  void Step() override;

  std::vector<std::string> Read(const std::string& topic, std::int32_t partition) override;

  // False when the sink's descriptor stays unreadable for 30 s.
  bool AwaitWake() const;

  // With the same options once more.
  void Reconfigure() { sink_->Reconfigure(options_); }

  const kafka::KafkaFacts& facts() const { return sink_->facts(); }

  const std::string& bootstrap() const { return bootstrap_; }

  // Event names of what the sink had for the log.
  const std::vector<std::string>& notices() const { return notices_; }

  const std::vector<std::string>& warnings() const { return warnings_; }  // their texts

 protected:
  // Unique in this Kafka.
  std::string NewName(const std::string& what);

 private:
  const std::string bootstrap_;
  kafka::KafkaOptions options_;
  std::chrono::milliseconds skipped_{0};
  std::vector<std::string> notices_;
  std::vector<std::string> warnings_;
  runtime::Helper helper_;
  std::unique_ptr<kafka::KafkaSink> sink_;
};

}  // namespace walpost::testing
