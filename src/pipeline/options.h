// PipelineOptions - the policy's settings. Plain data, filled in by config.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/backoff.h"
#include "envelope/encoder.h"
#include "outbox/options.h"

namespace walpost::pipeline {

// What becomes of an event that cannot be delivered.
enum class OnUndeliverable { kHalt, kDeadLetter, kPark, kSkip };

struct OutboxOptions {
  outbox::TableOptions table;
  envelope::EncoderOptions encoder;
};

// Transactional logical messages that are events.
struct MessagesOptions {
  std::vector<std::string> prefixes;  // empty = none is
  std::string topic = "{aggregate_type}";
  envelope::EncoderOptions encoder;
};

struct PipelineOptions {
  std::string name;            // key of its progress records
  std::string progress_topic;  // empty = nothing is remembered across restarts
  std::vector<OutboxOptions> outboxes;
  MessagesOptions messages;
  OnUndeliverable on_undeliverable = OnUndeliverable::kHalt;
  std::string dead_letter_topic;  // for letters
  std::size_t park_keys_max = 10'000;
  std::size_t in_flight_bytes_max = std::size_t{16} * 1024 * 1024;
  int attempts_max = 3;  // of a failure that says nothing about the record
  std::chrono::milliseconds shutdown_timeout{25'000};
  // Between planned reconnects that run preflight again; 0 = never.
  std::chrono::milliseconds recheck_interval{600'000};
  base::BackoffOptions source_backoff;
  base::BackoffOptions standby_backoff{std::chrono::milliseconds(500),
                                       std::chrono::milliseconds(5'000),
                                       std::chrono::milliseconds(200)};
  base::BackoffOptions sink_backoff;
  // Schemas that may change are looked up again.
  std::chrono::milliseconds schema_refresh{300'000};
  base::BackoffOptions schema_backoff;
  // While rows keep coming, what was read is held back this long and submitted together.
  std::chrono::microseconds gather_for{6'000};
  std::chrono::microseconds gather_max{25'000};  // while reports are awaited
  std::uint64_t seed = 1;                        // of the back-offs
};

// By the numbers that SchemaNeed::source is: the outboxes in their order, then messages.
inline std::vector<envelope::FramingOptions> FramingsOf(const PipelineOptions& options) {
  std::vector<envelope::FramingOptions> framings;
  for (const OutboxOptions& outbox : options.outboxes) {
    framings.push_back(outbox.encoder.framing);
  }
  framings.push_back(options.messages.encoder.framing);
  return framings;
}

}  // namespace walpost::pipeline
