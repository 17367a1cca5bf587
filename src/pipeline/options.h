// PipelineOptions - the policy's settings. Plain data, filled in by config.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/lsn.h"
#include "base/time.h"
#include "envelope/encoder.h"
#include "outbox/topic_rules.h"

namespace walpost::pipeline {

// Looks - when the catalogs are read again beside a stream, and what for.
// Why: pipeline_source.cc decides by it; docs/design.md, "Edits of publication and tables".
// Thread: a value of Pipeline's.
struct Looks {
  // Between two looks at the catalogs: whoever brings about many delays events by this each time.
  static constexpr std::chrono::milliseconds kLookEvery{200};
  // Of a standby, for what is confirmed only.
  static constexpr std::chrono::milliseconds kLookAtPositionEvery{2'000};
  // While nothing is confirmed that should be.
  static constexpr std::chrono::milliseconds kLookAfterStall{10'000};
  static constexpr std::chrono::milliseconds kLookWhileStalledEvery{30'000};

  std::uint64_t asked = 0;  // over all connections
  bool under_way = false;   // the last one, for this connection
  bool stops = false;       // nothing is read until it has come to its end
  bool needed = false;      // the connection ends when it fails
  base::Lsn seen_lsn;       // how far the stream was known when it was asked for
  base::MonotonicTime next;
  bool asked_for_position = false;    // by the server, for one that waits for a look
  base::MonotonicTime stalled_since;  // nothing more may be confirmed
  base::Lsn stalled_at;
};

// What becomes of an event that cannot be delivered.
enum class OnUndeliverable { kHalt, kDeadLetter, kPark, kSkip };

// Transactional logical messages that are events.
struct MessagesOptions {
  std::vector<std::string> prefixes;  // empty = none is
  std::string topic = "{aggregate_type}";
  outbox::TopicOptions topics;
  envelope::EncoderOptions encoder;
  // Whether a message that cannot be delivered counts as much as a row that cannot. Any SQL role
  // may emit, unless it was revoked: none of them may stop the line, park a key, or fill the table
  // of dead letters. So else it is skipped where a row would halt, or once a quarter of that table
  // is open.
  bool halts = false;
};

struct PipelineOptions {
  std::string name;            // key of its progress records
  std::string progress_topic;  // empty = nothing is remembered across restarts
  std::vector<envelope::OutboxOptions> outboxes;
  MessagesOptions messages;
  OnUndeliverable on_undeliverable = OnUndeliverable::kHalt;
  std::size_t dead_letters_max = 10'000;                        // open rows
  std::size_t dead_letters_per_second = 1'000;                  // new rows
  std::size_t event_bytes_max = std::size_t{64} * 1024 * 1024;  // of a row or message as it comes
  std::size_t in_flight_bytes_max = std::size_t{16} * 1024 * 1024;
  // That a topic does not exist is believed when Kafka has said nothing else for so long.
  std::chrono::milliseconds unknown_topic_wait{10'000};
  std::chrono::milliseconds shutdown_timeout{25'000};
  // Between planned reconnects that run preflight again; 0 = never.
  std::chrono::milliseconds reconnect_interval{600'000};
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

}  // namespace walpost::pipeline
