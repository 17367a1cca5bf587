#include "runtime/narrator.h"

#include <chrono>
#include <vector>

#include "absl/strings/str_format.h"
#include "kafka/versions.h"
#include "observe/log.h"
#include "postgres/versions.h"

namespace walpost::runtime {

using base::State;
using observe::LogField;
using observe::Severity;

namespace {

struct Words {
  Severity severity = Severity::kWarning;
  const char* event = "";
  const char* what = "";
};

Words DecisionWords(pipeline::Decision::Kind kind) {
  switch (kind) {
    case pipeline::Decision::Kind::kSkipped:
      return {Severity::kWarning, "event_skipped", "is skipped and will not be in Kafka"};
    case pipeline::Decision::Kind::kDeadLettered:
      return {Severity::kWarning, "event_dead_lettered", "goes to the dead-letter topic"};
    case pipeline::Decision::Kind::kParked:
      return {Severity::kWarning, "event_parked",
              "is parked in the dead-letter topic, and later events of its key too"};
  }
  return {};
}

}  // namespace

Narrator::Narrator(const RunOptions& options, base::Now now)
    : name_(options.name),
      slot_(options.source.slot),
      publication_(options.source.publication),
      in_flight_bytes_max_(options.pipeline.in_flight_bytes_max),
      gap_guard_(options.pipeline.progress_topic.empty() ? "off" : "on"),
      started_at_(now.wall),
      state_since_(now.wall) {}

void Narrator::Observe(const pipeline::Pipeline& pipeline, base::Now now) {
  if (pipeline.last_error() != current_error_) {
    current_error_ = pipeline.last_error();
    if (!current_error_.empty()) {
      last_error_ = current_error_;
      last_error_at_ = now.wall;
      observe::Log(Severity::kWarning, "source_error", last_error_, {{"slot", slot_}});
    }
  }
  if (pipeline.state() != state_) {
    LogState(pipeline, now);
  }
  WatchSchemas(pipeline.schemas(), now);
  WatchDelivery(pipeline, now);
}

// The reason may change while it lasts, which is news.
void Narrator::WatchSchemas(const pipeline::SchemaLookUps& schemas, base::Now now) {
  if (schemas.trouble() == schema_trouble_) {
    return;
  }
  if (schema_trouble_.empty()) {
    schema_trouble_since_ = now.mono;
  }
  schema_trouble_ = schemas.trouble();
  if (schema_trouble_.empty()) {
    const double seconds = std::chrono::duration<double>(now.mono - schema_trouble_since_).count();
    observe::Log(Severity::kInfo, "schema_registry_back",
                 absl::StrFormat("the Schema Registry answers again, after %.0f s", seconds));
    return;
  }
  last_error_ = schema_trouble_;
  last_error_at_ = now.wall;
  observe::Log(Severity::kWarning, "schema_registry_unavailable",
               absl::StrFormat("%s; events whose schema is not known yet wait, and so does "
                               "everything behind them",
                               schema_trouble_));
}

// A topic that went away makes every event of it undeliverable: a few a second are enough to see.
void Narrator::TellDecisions(pipeline::Pipeline* pipeline, base::Now now) {
  if (now.mono >= decisions_from_ + std::chrono::seconds(1)) {
    decisions_from_ = now.mono;
    decisions_told_ = 0;
  }
  while (decisions_told_ < kDecisionsPerSecond) {
    const std::optional<pipeline::Decision> decision = pipeline->TakeDecision();
    if (!decision) {
      return;
    }
    ++decisions_told_;
    const auto [severity, event, what] = DecisionWords(decision->kind);
    std::vector<LogField> fields = {{"event_id", decision->id},
                                    {"event_type", decision->type},
                                    {"table", decision->table},
                                    {"topic", decision->topic},
                                    {"position", decision->position},
                                    {"reason", decision->reason},
                                    {"attempt", std::to_string(decision->attempts)}};
    if (decision->not_told > 0) {
      fields.push_back({"not_told", std::to_string(decision->not_told)});
    }
    observe::Log(severity, event,
                 absl::StrFormat("event %s of %s %s: %s", decision->id, decision->table, what,
                                 decision->detail),
                 std::move(fields));
  }
}

void Narrator::WatchDelivery(const pipeline::Pipeline& pipeline, base::Now now) {
  const delivery::Tracker& tracker = pipeline.tracker();
  if (tracker.empty() || tracker.oldest_unsettled() != oldest_ || !oldest_since_) {
    if (stalled_) {
      const double seconds = std::chrono::duration<double>(now.mono - *oldest_since_).count();
      // A halt gives up what is in flight, which resumes nothing.
      if (pipeline.state() != State::kHalted) {
        observe::Log(Severity::kInfo, "delivery_resumed",
                     absl::StrFormat("Kafka acknowledges events again, after %.0f s", seconds));
      }
      stalled_ = false;
    }
    oldest_ = tracker.oldest_unsettled();
    oldest_since_ = tracker.empty() ? std::nullopt : std::optional(now.mono);
    return;
  }
  // Of the registry's trouble has been told already.
  if (stalled_ || !schema_trouble_.empty() || now.mono < *oldest_since_ + kStalledAfter) {
    return;
  }
  stalled_ = true;
  const delivery::Tracker::Entry& entry = tracker.entry(oldest_);
  const double seconds = std::chrono::duration<double>(now.mono - *oldest_since_).count();
  observe::Log(
      Severity::kWarning, "delivery_stalled",
      absl::StrFormat(
          "the oldest of %u events, for topic %s, has waited %.0f s for Kafka: is a broker "
          "down, a partition without leader or below min.insync.replicas, or may "
          "walpost's user not write? walpost goes on trying; see docs/runbook.md, "
          "Backpressured for long",
          tracker.in_flight_events(), entry.record.topic, seconds),
      {{"topic", std::string(entry.record.topic)}});
}

void Narrator::LogState(const pipeline::Pipeline& pipeline, base::Now now) {
  const double seconds = std::chrono::duration<double>(now.wall - state_since_).count();
  const State before = state_;
  state_ = pipeline.state();
  state_since_ = now.wall;
  std::vector<LogField> fields = {{"state", std::string(base::StateName(state_))},
                                  {"slot", slot_},
                                  {"safe_lsn", pipeline.tracker().safe_lsn().ToString()}};
  if (state_ == State::kHalted && pipeline.halt()) {
    fields.push_back({"reason", std::string(base::HaltReasonName(pipeline.halt()->reason))});
    observe::Log(Severity::kError, "halted", pipeline.halt()->detail, std::move(fields));
    return;
  }
  if (state_ == State::kStreaming && pipeline.facts()) {
    fields.push_back({"host", pipeline.facts()->host});
    fields.push_back({"database", pipeline.facts()->database});
    fields.push_back({"start_lsn", pipeline.facts()->start_lsn.ToString()});
  }
  const Severity severity = state_ == State::kReconnecting || state_ == State::kBackpressured
                                ? Severity::kWarning
                                : Severity::kInfo;
  observe::Log(severity, "state_changed",
               absl::StrFormat("%s, after %.1f s of %s", base::StateName(state_), seconds,
                               base::StateName(before)),
               std::move(fields));
}

std::string Narrator::StatusLine(const pipeline::Pipeline& pipeline) const {
  const State state = pipeline.state();
  if (state == State::kHalted && pipeline.halt()) {
    return absl::StrFormat("halted (%s): %s", base::HaltReasonName(pipeline.halt()->reason),
                           pipeline.halt()->detail);
  }
  if (state == State::kStarting || state == State::kReconnecting) {
    return absl::StrFormat("%s%s%s", base::StateName(state), current_error_.empty() ? "" : ": ",
                           current_error_);
  }
  return absl::StrFormat("%s: %d events delivered, %d in flight, confirmed %s",
                         base::StateName(state), pipeline.counters().events_delivered,
                         pipeline.tracker().in_flight_events(),
                         pipeline.confirmed_lsn().ToString());
}

observe::Snapshot Narrator::TakeSnapshot(const pipeline::Pipeline& pipeline,
                                         const kafka::KafkaFacts& kafka, base::Now now) const {
  observe::Snapshot snapshot;
  snapshot.name = name_;
  snapshot.slot = slot_;
  snapshot.publication = publication_;
  snapshot.libraries = {{"librdkafka", kafka::LibrdkafkaVersion()},
                        {"libpq", postgres::LibpqVersion()}};
  snapshot.state = pipeline.state();
  if (pipeline.halt()) {
    snapshot.halt_reason = pipeline.halt()->reason;
    snapshot.halt_detail = pipeline.halt()->detail;
  }
  snapshot.state_since = state_since_;
  snapshot.taken_at = now.wall;
  snapshot.started_at = started_at_;
  snapshot.gap_guard = gap_guard_;
  snapshot.last_error = last_error_.empty() ? kafka.last_error : last_error_;
  snapshot.last_error_at = last_error_at_;

  snapshot.source_connected = pipeline.connected();
  if (pipeline.facts()) {
    snapshot.system_identifier = pipeline.facts()->system_identifier;
    snapshot.timeline = pipeline.facts()->timeline;
    snapshot.server_version = pipeline.facts()->server_version;
    snapshot.database = pipeline.facts()->database;
    snapshot.source_host = pipeline.facts()->host;
  }
  snapshot.received_lsn = pipeline.received_lsn();
  snapshot.confirmed_lsn = pipeline.confirmed_lsn();
  snapshot.safe_lsn = pipeline.tracker().safe_lsn();
  snapshot.server_wal_lsn = std::max(pipeline.server_wal_lsn(), pipeline.received_lsn());
  snapshot.last_frame_at = pipeline.last_frame_at();
  snapshot.sink_connected = kafka.connected;
  snapshot.brokers = kafka.brokers;

  const pipeline::Counters& counters = pipeline.counters();
  snapshot.producer_generations = counters.producer_generations;
  snapshot.transactions_total = counters.transactions;
  snapshot.bytes_received_total = counters.bytes_received;
  snapshot.bytes_delivered_total = counters.bytes_delivered;
  snapshot.events_received_total = counters.events_received;
  snapshot.events_delivered_total = counters.events_delivered;
  snapshot.events_dead_lettered_total = counters.events_dead_lettered;
  snapshot.events_parked_total = counters.events_parked;
  snapshot.events_skipped_total = counters.events_skipped;
  snapshot.parked_keys = pipeline.parked_keys();
  snapshot.events_repeated_total = counters.events_repeated;
  snapshot.events_discarded_total = counters.events_discarded;
  snapshot.changes_ignored_total = counters.changes_ignored;
  snapshot.reconnects_total = counters.reconnects;
  snapshot.records_resubmitted_total = counters.records_resubmitted;
  snapshot.backpressure_ms_total = counters.backpressure_ms;
  snapshot.received_by_table = counters.received_by_table;
  snapshot.delivered_by_topic = counters.delivered_by_topic;
  snapshot.delivery_delay = counters.delivery_delay;
  snapshot.schemas_known = pipeline.schemas().table().size();
  snapshot.schema_look_ups_total = pipeline.schemas().statistics().look_ups;
  snapshot.schema_refusals_total = pipeline.schemas().statistics().refusals;
  snapshot.schema_failures_total = pipeline.schemas().statistics().failures;
  snapshot.last_delivered_at = counters.last_delivered_at;
  snapshot.last_events = counters.recent.NewestFirst();

  const delivery::Tracker& tracker = pipeline.tracker();
  snapshot.in_flight_events = tracker.in_flight_events();
  snapshot.in_flight_bytes = tracker.in_flight_bytes();
  snapshot.in_flight_bytes_max = in_flight_bytes_max_;
  if (!tracker.empty()) {
    snapshot.oldest_undelivered_commit = tracker.entry(tracker.oldest_unsettled()).commit_time;
  }
  return snapshot;
}

}  // namespace walpost::runtime
