#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "observe/http_server.h"
#include "observe/process_metrics.h"

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

Json Position(base::Lsn lsn) { return lsn.valid() ? Json(lsn.ToString()) : Json(nullptr); }

Json Source(const Snapshot& s) {
  Json source;
  source["connected"] = s.source_connected;
  source["host"] = s.source_host;
  source["database"] = s.database;
  source["server_version"] = s.server_version;
  source["system_identifier"] = std::to_string(s.system_identifier);
  source["timeline"] = s.timeline;
  source["slot"] = s.slot;
  source["publication"] = s.publication;
  source["server_wal_lsn"] = Position(s.server_wal_lsn);
  source["received_lsn"] = Position(s.received_lsn);
  source["safe_lsn"] = Position(s.safe_lsn);
  source["confirmed_lsn"] = Position(s.confirmed_lsn);
  source["lag_bytes"] = s.LagBytes();
  source["last_frame_at"] = Time(s.last_frame_at);
  return source;
}

Json Events(const Snapshot& s) {
  Json events;
  events["received"] = s.events_received_total;
  events["delivered"] = s.events_delivered_total;
  events["in_flight"] = s.in_flight_events;
  events["dead_lettered"] = s.events_dead_lettered_total;
  events["parked"] = s.events_parked_total;
  events["parked_keys"] = s.parked_keys;
  events["skipped"] = s.events_skipped_total;
  events["discarded"] = s.events_discarded_total;
  events["repeated"] = s.events_repeated_total;
  events["last_delivered_at"] = Time(s.last_delivered_at);
  events["by_table"] = Json::object();
  for (const auto& [table, count] : s.received_by_table) {
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
  status["last_error"] = s.last_error.empty() ? Json(nullptr) : Json(s.last_error);
  status["last_error_at"] = Time(s.last_error_at);
  status["started_at"] = Time(s.started_at);
  status["taken_at"] = Time(s.taken_at);
  status["source"] = Source(s);
  status["sink"] = {{"connected", s.sink_connected},
                    {"producer_generations", s.producer_generations},
                    {"records_resubmitted", s.records_resubmitted_total}};
  status["events"] = Events(s);
  status["in_flight"] = {{"events", s.in_flight_events},
                         {"bytes", s.in_flight_bytes},
                         {"bytes_max", s.in_flight_bytes_max},
                         {"oldest_commit_at", Time(s.oldest_undelivered_commit)}};
  status["schemas"] = {{"known", s.schemas_known},
                       {"lookups", s.schema_look_ups_total},
                       {"refusals", s.schema_refusals_total},
                       {"failures", s.schema_failures_total}};
  status["delivery_delay_seconds"] = {{"count", s.delivery_delay.Total()},
                                      {"p50_at_most", s.delivery_delay.Quantile(0.5)},
                                      {"p99_at_most", s.delivery_delay.Quantile(0.99)}};
  status["transactions"] = s.transactions_total;
  status["changes_ignored"] = s.changes_ignored_total;
  status["reconnects"] = s.reconnects_total;
  status["backpressure_ms"] = s.backpressure_ms_total;
  status["process"] = {{"cpu_seconds", process.cpu_seconds},
                       {"resident_bytes", process.resident_bytes},
                       {"resident_peak_bytes", process.resident_peak_bytes}};
  return status.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace walpost::observe
