// DeadLetterOutlet - publishes new dead letters to the dead-letter topic, for people who watch
// topics.
// Why: what counts is the row in walpost.dead_letters. Nothing reads the topic back, so nothing
//   waits for it, and what it does not take is only reported.
// Thread: one owner; Publish never waits for Kafka.
// Units/limits: beyond kBytesMax on the way the next ones are left out.
// Source: docs/dead-letters.md.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/dead_letter.h"
#include "kafka/client.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

class DeadLetterOutlet {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{16} << 20U;

  DeadLetterOutlet(KafkaOptions options, std::string topic, std::string pipeline)
      : options_(std::move(options)), topic_(std::move(topic)), pipeline_(std::move(pipeline)) {}

  // The error is about any that was published since the last call, and was not written.
  absl::Status Publish(const std::vector<base::DeadLetter>& rows);
  // What became of those on the way.
  absl::Status TakeReports();

  // Some are on the way.
  bool busy() const { return bytes_ > 0; }

 private:
  absl::Status Write(const base::DeadLetter& row);

  const KafkaOptions options_;
  const std::string topic_;
  const std::string pipeline_;
  Producer client_;  // null until needed, and after one that failed
  std::size_t bytes_ = 0;
};

}  // namespace walpost::kafka
