#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/text.h"
#include "observe/http_server.h"
#include "observe/metrics.h"

namespace walpost::observe {
namespace {

using Json = nlohmann::ordered_json;

// RFC 3339, null for "never".
Json Time(base::WallTime time) {
  const std::int64_t micros = time.time_since_epoch().count();
  if (micros == 0) {
    return nullptr;
  }
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixMicros(micros),
                          absl::UTCTimeZone());
}

// Null for what is not known yet.
Json Known(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json Known(std::uint64_t number) { return number == 0 ? Json(nullptr) : Json(number); }

template <typename T>
Json Known(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// JSON has no infinite numbers.
Json Finite(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(std::llround(*value)) : Json(nullptr);
}

Json Position(base::Lsn lsn) { return lsn.valid() ? Json(lsn.ToString()) : Json(nullptr); }

Json Source(const Snapshot& s) {
  Json source;
  source["connected"] = s.source_connected;
  source["host"] = Known(s.source_host);
  source["database"] = Known(s.database);
  source["server_version"] = Known(static_cast<std::uint64_t>(s.server_version));
  source["system_identifier"] =
      Known(s.system_identifier == 0 ? std::string() : std::to_string(s.system_identifier));
  source["timeline"] = Known(std::uint64_t{s.timeline});
  source["slot"] = s.slot;
  source["publication"] = s.publication;
  source["server_wal_lsn"] = Position(s.server_wal_lsn);
  source["received_lsn"] = Position(s.received_lsn);
  source["safe_lsn"] = Position(s.safe_lsn);
  source["confirmed_lsn"] = Position(s.confirmed_lsn);
  source["lag_bytes"] = s.LagBytes();
  source["last_frame_at"] = Time(s.last_frame_at);
  source["last_error"] = Known(s.source_error.text);
  source["last_error_at"] = Time(s.source_error.at);
  return source;
}

Json Room(const WalRoom& room) {
  Json json;
  json["limited"] = room.limit_bytes ? Json(std::isfinite(*room.limit_bytes)) : Json(nullptr);
  json["limit_bytes"] = Finite(room.limit_bytes);
  json["safe_bytes"] = Finite(room.safe_bytes);
  json["written_bytes_per_second"] = Finite(room.bytes_per_second);
  json["seconds_left"] = Finite(room.seconds_left);
  return json;
}

Json Slot(const base::SlotFigures& slot) {
  return {{"active", slot.active},
          {"wal_status", slot.wal_status},
          {"invalidation_reason", Known(slot.invalidation_reason)},
          {"retained_bytes", slot.retained_bytes},
          {"spilled_transactions", Known(slot.spilled_transactions)},
          {"spilled_bytes", Known(slot.spilled_bytes)},
          {"decoded_bytes", Known(slot.decoded_bytes)}};
}

Json Monitor(const MonitorView& monitor) {
  if (!monitor.enabled) {
    return nullptr;
  }
  Json json;
  json["up"] = monitor.up;
  json["error"] = Known(monitor.error);
  json["last_success_at"] = Time(monitor.last_success);
  json["in_recovery"] = nullptr;
  json["slot"] = nullptr;
  json["partitions"] = Json::array();
  if (monitor.figures) {
    json["in_recovery"] = monitor.figures->in_recovery;
    if (monitor.figures->slot) {
      json["slot"] = Slot(*monitor.figures->slot);
    }
    for (const base::OutboxPartitions& each : monitor.figures->partitions) {
      json["partitions"].push_back({{"table", each.table},
                                    {"count", each.count},
                                    {"oldest_end", Time(each.oldest_end)},
                                    {"newest_end", Time(each.newest_end)}});
    }
  }
  return json;
}

Json Sink(const Snapshot& s) {
  Json sink;
  sink["connected"] = s.sink_connected;
  sink["producer_sessions"] = s.counters.producer_sessions;
  sink["records_resubmitted"] = s.counters.records_resubmitted;
  sink["last_error"] = Known(s.sink_error.text);
  sink["last_error_at"] = Time(s.sink_error.at);
  sink["brokers"] = Json::array();
  for (const base::BrokerFigures& broker : s.brokers) {
    sink["brokers"].push_back({{"address", broker.address},
                               {"up", broker.up},
                               {"round_trip_p99_seconds", broker.round_trip_p99},
                               {"throttle_max_seconds", broker.throttle_max},
                               {"queued_requests", broker.queued_requests},
                               {"waiting_requests", broker.waiting_requests},
                               {"send_errors", broker.send_errors},
                               {"receive_errors", broker.receive_errors},
                               {"retries", broker.retries},
                               {"timeouts", broker.timeouts},
                               {"disconnects", broker.disconnects}});
  }
  return sink;
}

// As the histogram counts it: two clocks may differ.
double DelaySeconds(const base::DeliveredEvent& event) {
  return std::max(0.0,
                  std::chrono::duration<double>(event.delivered_at - event.committed_at).count());
}

Json LastEvents(const std::vector<base::DeliveredEvent>& events) {
  Json list = Json::array();
  for (const base::DeliveredEvent& event : events) {
    list.push_back({{"id", Known(event.id)},
                    {"type", Known(event.type)},
                    {"topic", event.topic},
                    {"partition", event.partition < 0 ? Json(nullptr) : Json(event.partition)},
                    {"offset", event.offset < 0 ? Json(nullptr) : Json(event.offset)},
                    {"commit_lsn", Position(event.commit_lsn)},
                    {"committed_at", Time(event.committed_at)},
                    {"delivered_at", Time(event.delivered_at)},
                    {"delay_seconds", DelaySeconds(event)}});
  }
  return list;
}

Json Events(const Snapshot& s) {
  Json events;
  events["received"] = s.counters.events_received;
  events["delivered"] = s.counters.events_delivered;
  events["in_flight"] = s.in_flight_events;
  events["dead_lettered"] = s.counters.events_dead_lettered;
  events["parked"] = s.counters.events_parked;
  events["parked_keys"] = s.parked_keys;
  events["skipped"] = s.counters.events_skipped;
  events["discarded"] = s.counters.events_discarded;
  events["repeated"] = s.counters.events_repeated;
  events["last_delivered_at"] = Time(s.counters.last_delivered_at);
  events["by_table"] = Json::object();
  for (const auto& [table, count] : s.counters.received_by_table) {
    events["by_table"][table] = count;
  }
  events["by_topic"] = Json::object();
  for (const auto& [topic, count] : s.delivered_by_topic) {
    if (count > 0) {
      events["by_topic"][topic] = count;
    }
  }
  return events;
}

}  // namespace

std::string RenderStatusJson(const Snapshot& s, const std::string& version) {
  const ProcessMetrics process = ReadProcessMetrics();
  Json status;
  status["name"] = s.name;
  status["version"] = version;
  status["state"] = base::StateName(s.state);
  status["state_since"] = Time(s.state_since);
  status["halt"] = nullptr;
  if (s.state == base::State::kHalted) {
    status["halt"] = {{"reason", base::HaltReasonName(s.halt_reason)}, {"detail", s.halt_detail}};
  }
  status["gap_guard"] = s.gap_guard;
  status["last_error"] = Known(s.last_error.text);
  status["last_error_at"] = Time(s.last_error.at);
  status["started_at"] = Time(s.started_at);
  status["taken_at"] = Time(s.taken_at);
  status["source"] = Source(s);
  status["wal_room"] = Room(s.wal_room);
  status["monitor"] = Monitor(s.monitor);
  status["sink"] = Sink(s);
  status["events"] = Events(s);
  status["in_flight"] = {{"events", s.in_flight_events},
                         {"bytes", s.in_flight_bytes},
                         {"bytes_max", s.in_flight_bytes_max},
                         {"oldest_commit_at", Time(s.oldest_undelivered_commit)}};
  status["last_events"] = LastEvents(s.last_events);
  status["schemas"] = {{"known", s.schemas_known},
                       {"lookups", s.schema_look_ups_total},
                       {"rejections", s.schema_rejections_total},
                       {"failures", s.schema_failures_total}};
  status["delivery_delay_seconds"] = {{"count", s.counters.delivery_delay.Total()},
                                      {"p50_at_most", s.counters.delivery_delay.Quantile(0.5)},
                                      {"p99_at_most", s.counters.delivery_delay.Quantile(0.99)}};
  status["transactions"] = s.counters.transactions;
  status["changes_ignored"] = s.counters.changes_ignored;
  status["reconnects"] = s.counters.reconnects;
  status["backpressure_ms"] = s.counters.backpressure_ms;
  status["process"] = {{"cpu_seconds", process.cpu_seconds},
                       {"resident_bytes", process.resident_bytes},
                       {"resident_peak_bytes", process.resident_peak_bytes}};
  return base::JsonText(status, 2) + "\n";
}

}  // namespace walpost::observe
