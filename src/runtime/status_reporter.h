// StatusReporter - writes what the pipeline is doing to the log and the snapshot, once per change.
// Thread: loop thread.   Lifetime: keeps nothing of the pipeline.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/state.h"
#include "base/time.h"
#include "kafka/kafka_sink.h"
#include "observe/log.h"
#include "observe/snapshot.h"
#include "pipeline/pipeline.h"
#include "runtime/options.h"

namespace walpost::runtime {

class StatusReporter {
 public:
  // While brokers change leaders, 5 to 45 s without an acknowledgement are normal.
  static constexpr std::chrono::seconds kStalledAfter{60};
  static constexpr int kDecisionsPerSecond = 10;
  // When a state flaps, the next interval logs the last state, and how many were not logged.
  static constexpr int kStatesPerInterval = 10;

  StatusReporter(const RunOptions& options, base::Now now);

  // Logs state changes, new errors and recoveries, and when nothing is acknowledged for long: for
  // some troubles (a lost in-sync replica) Kafka has no other sign.
  void Observe(const pipeline::Pipeline& pipeline, const kafka::KafkaFacts& kafka, base::Now now);

  // Logs what was decided about undeliverable events.
  void ReportDecisions(pipeline::Pipeline* pipeline, base::Now now);

  // One line, for the service manager.
  std::string StatusLine(const pipeline::Pipeline& pipeline) const;

  // Before there is a pipeline: it only says which pipeline this is.
  observe::Snapshot FirstSnapshot(base::Now now) const;
  observe::Snapshot TakeSnapshot(const pipeline::Pipeline& pipeline, const kafka::KafkaFacts& kafka,
                                 base::Now now) const;

 private:
  // What has not come through yet.
  struct Gathered {
    std::uint64_t lag_bytes = 0;
    std::size_t events = 0;
    std::size_t bytes = 0;
  };

  // What has waited for Kafka since when.
  struct Wait {
    std::optional<delivery::Sequence> what;
    base::MonotonicTime since;
    bool reported = false;
  };

  enum class WaitNews { kNone, kStalled, kResumed };

  // `schema`: of what waits.
  WaitNews Look(std::optional<delivery::Sequence> what, envelope::SchemaTable::Ref schema,
                const pipeline::SchemaLookUps& schemas, base::Now now, Wait* wait) const;

  static Gathered LookAt(const pipeline::Pipeline& pipeline);
  void NoteState(base::State state, base::Now now);
  void ReportState(const pipeline::Pipeline& pipeline, base::Now now);
  void LogHalt(const pipeline::Halt& halt, std::vector<observe::LogField> fields) const;
  void LogRepeated(observe::Severity severity, observe::LogEvent event, const std::string& cause,
                   const std::string& message, std::vector<observe::LogField> fields,
                   base::Now now);
  void WatchSource(const pipeline::Pipeline& pipeline, base::Now now);
  void WatchKafka(bool down, base::Now now);
  void WatchDelivery(const pipeline::Pipeline& pipeline, base::Now now);
  void WatchRelease(const pipeline::Pipeline& pipeline, base::Now now);
  void WatchSchemas(const pipeline::SchemaLookUps& schemas, base::Now now);
  void LogRecovery(observe::LogEvent event, const std::string& what, base::MonotonicTime since,
                   const Gathered& gathered, base::Now now);

  const std::string name_;
  const std::string slot_;
  const std::string publication_;
  const std::size_t in_flight_bytes_max_;
  const std::string gap_guard_;
  const base::WallTime started_at_;
  base::State state_ = base::State::kStarting;
  base::WallTime state_since_;
  base::State state_before_ = base::State::kStarting;
  double state_before_seconds_ = 0;      // how long that was
  std::uint64_t unreported_states_ = 0;  // the present one among them
  int reported_states_ = 0;              // since states_from_
  base::MonotonicTime states_from_;
  observe::RepeatLimiter repeats_;
  Gathered gathered_;  // a turn ago: the first answer after an outage may acknowledge all of it
  std::string current_error_;  // of the source; empty once it is over
  observe::Trouble source_error_;
  observe::Trouble schema_error_;
  std::optional<base::MonotonicTime> source_away_since_;
  std::optional<base::MonotonicTime> kafka_down_since_;
  Wait oldest_;                 // in flight
  Wait released_;               // the dead letter that is sent again
  std::string schema_trouble_;  // empty = the registry answers, or was never asked
  base::MonotonicTime schema_trouble_since_;
  base::MonotonicTime decisions_from_;  // the second that reported_decisions_ is of
  int reported_decisions_ = 0;
};

}  // namespace walpost::runtime
