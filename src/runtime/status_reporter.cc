#include "runtime/status_reporter.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/text.h"
#include "kafka/client.h"
#include "observe/log.h"
#include "postgres/connection.h"

namespace walpost::runtime {

using base::State;
using observe::LogEvent;
using observe::LogField;
using observe::Severity;

namespace {

struct Words {
  Severity severity = Severity::kWarning;
  LogEvent event = LogEvent::kEventSkipped;
  const char* what = "";
};

Words DecisionWords(pipeline::Decision::Kind kind) {
  switch (kind) {
    case pipeline::Decision::Kind::kSkipped:
      return {Severity::kWarning, LogEvent::kEventSkipped, "is skipped and will not be in Kafka"};
    case pipeline::Decision::Kind::kDeadLettered:
      return {Severity::kWarning, LogEvent::kEventDeadLettered, "becomes a dead letter"};
    case pipeline::Decision::Kind::kParked:
      return {Severity::kWarning, LogEvent::kEventParked,
              "is parked as a dead letter, and later events of its key too"};
    case pipeline::Decision::Kind::kRetried:
      return {Severity::kWarning, LogEvent::kEventRetried, "was not taken and is tried again"};
  }
  return {};
}

std::vector<LogField> FieldsOf(const pipeline::EventReference& event) {
  std::vector<LogField> fields = {{"event_id", event.id}, {"event_type", event.type}};
  if (event.key) {
    fields.push_back({"aggregate_id", *event.key});
  }
  fields.push_back({"table", event.table});
  fields.push_back({"topic", event.topic});
  fields.push_back({"position", event.position});
  if (!event.reason.empty()) {
    fields.push_back({"reason", event.reason});
  }
  if (event.attempts > 0) {
    fields.push_back({"attempt", std::to_string(event.attempts)});
  }
  return fields;
}

// What the slot has: where it began, as long as this process has confirmed nothing.
base::Lsn SlotPosition(const pipeline::Pipeline& pipeline) {
  const base::Lsn confirmed = pipeline.confirmed_lsn();
  return pipeline.facts() ? std::max(confirmed, pipeline.facts()->start_lsn) : confirmed;
}

std::uint64_t LagBytes(const pipeline::Pipeline& pipeline) {
  const base::Lsn from = SlotPosition(pipeline);
  const base::Lsn to = std::max(pipeline.server_wal_lsn(), pipeline.received_lsn());
  return from.valid() && to > from ? to.value() - from.value() : 0;
}

observe::Trouble Newest(std::initializer_list<observe::Trouble> troubles) {
  return *std::max_element(troubles.begin(), troubles.end(), [](const auto& a, const auto& b) {
    return std::pair(!a.text.empty(), a.at) < std::pair(!b.text.empty(), b.at);
  });
}

void AddReasons(const pipeline::Counters& counters, const kafka::KafkaFacts& kafka,
                observe::Snapshot* snapshot) {
  for (const pipeline::ReconnectReason reason : pipeline::kAllReconnectReasons) {
    snapshot->reconnects_by_reason.push_back(
        {"postgresql", std::string(pipeline::ReconnectReasonName(reason)),
         counters.reconnects_by_reason[static_cast<std::size_t>(reason)]});
  }
  snapshot->reconnects_by_reason.push_back({"kafka", "brokers_down", kafka.outages});
  for (const pipeline::FailedEvents::Row& row : counters.events_failed.rows) {
    snapshot->failed_by_topic.push_back({row.topic, row.reason, row.count});
  }
  snapshot->producers_by_reason = {{"failure", counters.producers_after_failure},
                                   {"recovered", counters.producers_after_recovery},
                                   {"recalled", counters.producers_after_recall},
                                   {"settings", counters.producers_for_settings}};
  snapshot->duplicates_possible_total = kafka.possibly_delivered;
}

// An event's id and key stand in it.
std::string DetailOf(const pipeline::Halt& halt) {
  return base::Cut(halt.detail, base::kMessageBytesMax);
}

double SecondsSince(base::MonotonicTime since, base::Now now) {
  return std::chrono::duration<double>(now.mono - since).count();
}

}  // namespace

StatusReporter::StatusReporter(const RunOptions& options, base::Now now)
    : name_(options.name),
      slot_(options.source.slot),
      publication_(options.source.publication),
      in_flight_bytes_max_(options.pipeline.in_flight_bytes_max),
      gap_guard_(options.pipeline.progress_topic.empty() ? "off" : "on"),
      started_at_(now.wall),
      state_since_(now.wall) {}

void StatusReporter::Observe(const pipeline::Pipeline& pipeline, const kafka::KafkaFacts& kafka,
                             base::Now now) {
  if (pipeline.last_error() != current_error_) {
    current_error_ = pipeline.last_error();
    if (!current_error_.empty()) {
      source_error_ = {current_error_, now.wall};
      LogRepeated(Severity::kWarning, LogEvent::kSourceError, current_error_, current_error_,
                  {{"slot", slot_}}, now);
    }
  }
  WatchSource(pipeline, now);
  if (pipeline.state() != state_) {
    NoteState(pipeline.state(), now);
  }
  if (unreported_states_ > 0) {
    ReportState(pipeline, now);
  }
  WatchKafka(kafka.down, now);
  WatchSchemas(pipeline.schemas(), now);
  WatchDelivery(pipeline, now);
  WatchRelease(pipeline, now);
  gathered_ = LookAt(pipeline);
}

StatusReporter::Gathered StatusReporter::LookAt(const pipeline::Pipeline& pipeline) {
  const delivery::Tracker& tracker = pipeline.tracker();
  return {LagBytes(pipeline), tracker.in_flight_events(), tracker.in_flight_bytes()};
}

// Standby, halted and draining are no outage.
void StatusReporter::WatchSource(const pipeline::Pipeline& pipeline, base::Now now) {
  const State state = pipeline.state();
  const bool away =
      !pipeline.connected() &&
      (state == State::kReconnecting || (state == State::kStarting && !current_error_.empty()));
  if (away) {
    source_away_since_ = source_away_since_.value_or(now.mono);
    return;
  }
  if (source_away_since_ && pipeline.connected()) {
    LogRecovery(LogEvent::kSourceBack, "PostgreSQL is connected again", *source_away_since_,
                LookAt(pipeline), now);
  }
  source_away_since_.reset();
}

void StatusReporter::WatchKafka(bool down, base::Now now) {
  if (down) {
    kafka_down_since_ = kafka_down_since_.value_or(now.mono);
  } else if (kafka_down_since_) {
    LogRecovery(LogEvent::kKafkaBrokersBack, "Kafka answers again", *kafka_down_since_, gathered_,
                now);
    kafka_down_since_.reset();
  }
}

// How long it was, and what has gathered meanwhile.
void StatusReporter::LogRecovery(LogEvent event, const std::string& what, base::MonotonicTime since,
                                 const Gathered& gathered, base::Now now) {
  const double seconds = SecondsSince(since, now);
  LogRepeated(
      Severity::kInfo, event, "",
      absl::StrFormat("%s, after %.1f s: %u bytes of WAL are not confirmed, %u events in flight",
                      what, seconds, gathered.lag_bytes, gathered.events),
      {{"seconds", absl::StrFormat("%.3f", seconds)},
       {"lag_bytes", std::to_string(gathered.lag_bytes)},
       {"in_flight_events", std::to_string(gathered.events)},
       {"in_flight_bytes", std::to_string(gathered.bytes)}},
      now);
}

void StatusReporter::LogRepeated(Severity severity, LogEvent event, const std::string& cause,
                                 const std::string& message, std::vector<LogField> fields,
                                 base::Now now) {
  const std::optional<std::uint64_t> not_reported = repeats_.Take(event, cause, now.mono);
  if (!not_reported) {
    return;
  }
  if (*not_reported > 0) {
    fields.push_back({"not_reported", std::to_string(*not_reported)});
  }
  observe::Log(severity, event, message, std::move(fields));
}

// The reason may change while it lasts, which is news.
void StatusReporter::WatchSchemas(const pipeline::SchemaLookUps& schemas, base::Now now) {
  if (schemas.trouble() == schema_trouble_) {
    return;
  }
  if (schema_trouble_.empty()) {
    schema_trouble_since_ = now.mono;
  }
  schema_trouble_ = schemas.trouble();
  if (schema_trouble_.empty()) {
    LogRecovery(LogEvent::kSchemaRegistryBack, "the Schema Registry answers again",
                schema_trouble_since_, gathered_, now);
    return;
  }
  schema_error_ = {schema_trouble_, now.wall};
  // Each time: it may last, and there is no other line about it.
  observe::Log(Severity::kWarning, LogEvent::kSchemaRegistryUnavailable,
               absl::StrFormat("%s; an event whose schema is not known yet waits, with later ones "
                               "of its topic",
                               schema_trouble_),
               {});
}

// A topic that went away makes every event of it undeliverable: a few a second are enough to see.
void StatusReporter::ReportDecisions(pipeline::Pipeline* pipeline, base::Now now) {
  if (now.mono >= decisions_from_ + std::chrono::seconds(1)) {
    decisions_from_ = now.mono;
    reported_decisions_ = 0;
  }
  while (reported_decisions_ < kDecisionsPerSecond) {
    const std::optional<pipeline::Decision> decision = pipeline->TakeDecision();
    if (!decision) {
      return;
    }
    ++reported_decisions_;
    const auto [severity, event, what] = DecisionWords(decision->kind);
    std::vector<LogField> fields = FieldsOf(decision->event);
    if (decision->not_reported > 0) {
      fields.push_back({"not_reported", std::to_string(decision->not_reported)});
    }
    observe::Log(severity, event,
                 absl::StrFormat("event %s of %s %s: %s", decision->event.id, decision->event.table,
                                 what, decision->detail),
                 std::move(fields));
  }
}

StatusReporter::WaitNews StatusReporter::Look(std::optional<delivery::Sequence> what,
                                              envelope::SchemaTable::Ref schema,
                                              const pipeline::SchemaLookUps& schemas, base::Now now,
                                              Wait* wait) const {
  if (!what || what != wait->what) {
    const bool resumed = wait->reported;
    *wait = Wait{what, now.mono};
    return resumed ? WaitNews::kResumed : WaitNews::kNone;
  }
  // That it waits for the registry has been logged already.
  const bool logged = !schema_trouble_.empty() && schemas.table().wanted().contains(schema);
  if (wait->reported || logged || now.mono < wait->since + kStalledAfter) {
    return WaitNews::kNone;
  }
  wait->reported = true;
  return WaitNews::kStalled;
}

void StatusReporter::WatchDelivery(const pipeline::Pipeline& pipeline, base::Now now) {
  const delivery::Tracker& tracker = pipeline.tracker();
  const base::MonotonicTime since = oldest_.since;
  const auto oldest = tracker.empty() ? std::nullopt : std::optional(tracker.oldest_unsettled());
  const WaitNews news = Look(oldest, oldest ? tracker.entry(*oldest).record.schema : 0,
                             pipeline.schemas(), now, &oldest_);
  // A halt gives up what is in flight, which resumes nothing.
  if (news == WaitNews::kResumed && pipeline.state() != State::kHalted) {
    LogRecovery(LogEvent::kDeliveryResumed, "Kafka acknowledges events again", since, gathered_,
                now);
  }
  if (news != WaitNews::kStalled) {
    return;
  }
  observe::Log(
      Severity::kWarning, LogEvent::kDeliveryStalled,
      absl::StrFormat(
          "the oldest of %u events, for topic %s, has waited %.0f s for Kafka: is a broker "
          "down, a partition without leader or below min.insync.replicas, or may "
          "walpost's user not write? walpost goes on trying; see docs/runbook.md, "
          "Backpressured for long",
          tracker.in_flight_events(), tracker.entry(tracker.oldest_unsettled()).record.topic,
          SecondsSince(since, now)),
      FieldsOf(pipeline.OldestInFlight()));
}

// The line may go on beside it.
void StatusReporter::WatchRelease(const pipeline::Pipeline& pipeline, base::Now now) {
  const pipeline::DeadLetters& dead_letters = pipeline.dead_letters();
  const WaitNews news = Look(
      dead_letters.record().topic.empty() ? std::nullopt : std::optional(dead_letters.sequence()),
      dead_letters.record().schema, pipeline.schemas(), now, &released_);
  if (news == WaitNews::kStalled) {
    observe::Log(Severity::kWarning, LogEvent::kDeliveryStalled,
                 absl::StrFormat("a dead letter that is sent again, for topic %s, has waited %d s "
                                 "for Kafka: is a broker down, or a partition without leader? "
                                 "walpost goes on trying, and a discard of it ends that; see "
                                 "docs/runbook.md, Backpressured for long",
                                 dead_letters.record().topic, kStalledAfter.count()),
                 {{"topic", std::string(dead_letters.record().topic)}});
  }
}

void StatusReporter::NoteState(State state, base::Now now) {
  state_before_ = state_;
  state_before_seconds_ = std::chrono::duration<double>(now.wall - state_since_).count();
  state_ = state;
  state_since_ = now.wall;
  ++unreported_states_;
}

void StatusReporter::ReportState(const pipeline::Pipeline& pipeline, base::Now now) {
  if (now.mono >= states_from_ + observe::RepeatLimiter::kEvery) {
    states_from_ = now.mono;
    reported_states_ = 0;
  }
  if (reported_states_ == kStatesPerInterval && state_ != State::kHalted) {
    return;
  }
  ++reported_states_;
  std::vector<LogField> fields = {{"state", std::string(base::StateName(state_))},
                                  {"slot", slot_},
                                  {"safe_lsn", pipeline.tracker().safe_lsn().ToString()}};
  if (const std::uint64_t others = std::exchange(unreported_states_, 0) - 1; others > 0) {
    fields.push_back({"not_reported", std::to_string(others)});
  }
  if (state_ == State::kHalted && pipeline.halt()) {
    LogHalt(*pipeline.halt(), std::move(fields));
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
  observe::Log(severity, LogEvent::kStateChanged,
               absl::StrFormat("%s, after %.1f s of %s", base::StateName(state_),
                               state_before_seconds_, base::StateName(state_before_)),
               std::move(fields));
}

void StatusReporter::LogHalt(const pipeline::Halt& halt, std::vector<LogField> fields) const {
  fields.push_back({"reason", std::string(base::HaltReasonName(halt.reason))});
  if (halt.event) {
    pipeline::EventReference event = *halt.event;
    fields.push_back({"cause", std::exchange(event.reason, "")});  // the halt has a reason, too
    for (LogField& field : FieldsOf(event)) {
      fields.push_back(std::move(field));
    }
  }
  observe::Log(Severity::kError, LogEvent::kHalted, halt.detail, std::move(fields));
}

std::string StatusReporter::StatusLine(const pipeline::Pipeline& pipeline) const {
  const State state = pipeline.state();
  if (state == State::kHalted && pipeline.halt()) {
    return absl::StrFormat("halted (%s): %s", base::HaltReasonName(pipeline.halt()->reason),
                           DetailOf(*pipeline.halt()));
  }
  if (state == State::kStarting || state == State::kReconnecting) {
    return absl::StrFormat("%s%s%s", base::StateName(state), current_error_.empty() ? "" : ": ",
                           current_error_);
  }
  return absl::StrFormat("%s: %d events delivered, %d in flight, confirmed %s",
                         base::StateName(state), pipeline.counters().events_delivered,
                         pipeline.tracker().in_flight_events(), SlotPosition(pipeline).ToString());
}

observe::Snapshot StatusReporter::FirstSnapshot(base::Now now) const {
  observe::Snapshot snapshot;
  snapshot.name = name_;
  snapshot.slot = slot_;
  snapshot.publication = publication_;
  snapshot.libraries = {{"librdkafka", kafka::LibrdkafkaVersion()},
                        {"libpq", postgres::LibpqVersion()}};
  snapshot.state_since = state_since_;
  snapshot.taken_at = now.wall;
  snapshot.started_at = started_at_;
  snapshot.gap_guard = gap_guard_;
  snapshot.in_flight_bytes_max = in_flight_bytes_max_;
  return snapshot;
}

observe::Snapshot StatusReporter::TakeSnapshot(const pipeline::Pipeline& pipeline,
                                               const kafka::KafkaFacts& kafka,
                                               base::Now now) const {
  observe::Snapshot snapshot = FirstSnapshot(now);
  snapshot.state = pipeline.state();
  if (pipeline.halt()) {
    snapshot.halt_reason = pipeline.halt()->reason;
    snapshot.halt_detail = DetailOf(*pipeline.halt());
  }
  snapshot.source_error = source_error_;
  snapshot.sink_error = {kafka.last_error, kafka.last_error_at};
  snapshot.last_error = Newest({source_error_, schema_error_, snapshot.sink_error});

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
  snapshot.counters = counters;
  snapshot.parked_keys = pipeline.parked_keys();
  snapshot.delivered_by_topic = counters.delivered_by_topic.rows();
  AddReasons(counters, kafka, &snapshot);
  snapshot.stages = {{"source", counters.stages.source},
                     {"queue", counters.stages.queue},
                     {"produce", counters.stages.produce}};
  snapshot.schemas_known = pipeline.schemas().table().size();
  snapshot.schema_look_ups_total = pipeline.schemas().statistics().look_ups;
  snapshot.schema_rejections_total = pipeline.schemas().statistics().rejections;
  snapshot.schema_failures_total = pipeline.schemas().statistics().failures;
  snapshot.last_events = counters.recent.NewestFirst();

  const delivery::Tracker& tracker = pipeline.tracker();
  snapshot.in_flight_events = tracker.in_flight_events();
  snapshot.in_flight_bytes = tracker.in_flight_bytes();
  if (!tracker.empty()) {
    snapshot.oldest_undelivered_commit = tracker.entry(tracker.oldest_unsettled()).commit_time;
  }
  return snapshot;
}

}  // namespace walpost::runtime
