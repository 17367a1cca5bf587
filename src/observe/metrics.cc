#include "observe/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "observe/http_server.h"

namespace walpost::observe {
namespace {

// A line of /proc/self/status such as "VmHWM:    1234 kB".
double StatusField(const std::string& status, const std::string& name) {
  const std::size_t at = status.find(name + ":");
  return at == std::string::npos ? 0 : std::strtod(status.c_str() + at + name.size() + 1, nullptr);
}

double BootTimeSeconds() {
  std::ifstream stat("/proc/stat");
  std::string word;
  while (stat >> word) {
    if (word == "btime") {
      double seconds = 0;
      stat >> seconds;
      return seconds;
    }
  }
  return 0;
}

double StartTimeSeconds() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Field 22; the second field is in parentheses and may hold spaces.
  const std::size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(after_name + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
  }
  return BootTimeSeconds() +
         std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessMetrics ReadProcessMetrics() {
  ProcessMetrics metrics;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  metrics.cpu_seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                        static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  std::ifstream file("/proc/self/status");
  const std::string status((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  metrics.resident_bytes = StatusField(status, "VmRSS") * 1024;
  metrics.resident_peak_bytes = StatusField(status, "VmHWM") * 1024;
  metrics.virtual_bytes = StatusField(status, "VmSize") * 1024;
  metrics.threads = StatusField(status, "Threads");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    (void)entry;
    ++metrics.open_fds;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  metrics.max_fds = static_cast<double>(limit.rlim_cur);
  static const double start_time = StartTimeSeconds();
  metrics.start_time_seconds = start_time;
  return metrics;
}

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

double Seconds(base::WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double Double(std::uint64_t value) { return static_cast<double>(value); }

// Families with a fixed label set, in the order shown.
class Builder {
 public:
  explicit Builder(std::string pipeline) : pipeline_(std::move(pipeline)) {}

  void Gauge(const std::string& name, const std::string& help, double value) {
    Start(name, help, MetricType::Gauge);
    Add({}, value);
  }

  void Counter(const std::string& name, const std::string& help, double value) {
    Start(name, help, MetricType::Counter);
    Add({}, value);
  }

  void Start(const std::string& name, const std::string& help, MetricType type) {
    families_.emplace_back();
    families_.back().name = name;
    families_.back().help = help;
    families_.back().type = type;
  }

  void Add(std::vector<ClientMetric::Label> labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    metric.label.insert(metric.label.begin(), {"pipeline", pipeline_});
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    families_.back().metric.push_back(std::move(metric));
  }

  // Of the family started last.
  template <typename Bounds, typename Counts>
  void AddHistogram(const std::vector<ClientMetric::Label>& labels, const Bounds& upper_bounds,
                    const Counts& counts, double sum) {
    ClientMetric metric;
    metric.label = labels;
    metric.label.insert(metric.label.begin(), {"pipeline", pipeline_});
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      cumulative += counts[i];
      ClientMetric::Bucket bucket;
      bucket.cumulative_count = cumulative;
      bucket.upper_bound = i < upper_bounds.size() ? static_cast<double>(upper_bounds[i])
                                                   : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back(bucket);
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = sum;
    families_.back().metric.push_back(std::move(metric));
  }

  void AddHistogram(const std::vector<ClientMetric::Label>& labels,
                    const DelayHistogram& histogram) {
    AddHistogram(labels, DelayHistogram::kUpperBoundsSeconds, histogram.counts,
                 histogram.sum_seconds);
  }

  std::string Serialize() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  const std::string pipeline_;
  std::vector<MetricFamily> families_;
};

void AddState(const Snapshot& s, const std::string& version, Builder* b) {
  b->Start("walpost_build_info", "Constant 1, labelled with the version.", MetricType::Gauge);
  std::vector<ClientMetric::Label> build = {{"version", version}};
  for (const auto& [library, its_version] : s.libraries) {
    build.push_back({library, its_version});
  }
  b->Add(std::move(build), 1);
  b->Gauge("walpost_up", "1 while streaming from the source, else 0.",
           s.state == base::State::kStreaming || s.state == base::State::kBackpressured ? 1 : 0);
  b->Start("walpost_state", "1 for the state the pipeline is in, 0 for the others.",
           MetricType::Gauge);
  for (const base::State state : base::kAllStates) {
    b->Add({{"state", std::string(base::StateName(state))}}, state == s.state ? 1 : 0);
  }
  b->Start("walpost_halted", "1 for the reason the pipeline is halted by, 0 for the others.",
           MetricType::Gauge);
  for (const base::HaltReason reason : base::kAllHaltReasons) {
    const bool now = s.state == base::State::kHalted && reason == s.halt_reason;
    b->Add({{"reason", std::string(base::HaltReasonName(reason))}}, now ? 1 : 0);
  }
  b->Gauge("walpost_state_since_timestamp_seconds", "When the present state began.",
           Seconds(s.state_since));
  b->Gauge("walpost_gap_guard",
           "1 while progress is remembered across restarts and gaps are looked for.",
           s.gap_guard == "on" ? 1 : 0);
  b->Gauge("walpost_source_connected", "1 while a replication connection is open.",
           s.source_connected ? 1 : 0);
  b->Gauge("walpost_sink_connected", "1 when a Kafka broker has answered since all were last down.",
           s.sink_connected ? 1 : 0);
}

void AddPositions(const Snapshot& s, Builder* b) {
  b->Gauge("walpost_wal_received_lsn_bytes", "Highest WAL position received.",
           Double(s.received_lsn.value()));
  b->Gauge("walpost_wal_safe_lsn_bytes", "WAL position below which everything is delivered.",
           Double(s.safe_lsn.value()));
  b->Gauge("walpost_wal_acked_lsn_bytes", "WAL position confirmed to the server.",
           Double(s.confirmed_lsn.value()));
  b->Gauge("walpost_server_wal_lsn_bytes", "Newest WAL position the server reported.",
           Double(s.server_wal_lsn.value()));
  b->Gauge("walpost_slot_lag_bytes",
           "WAL between the confirmed position and the newest the server reported.",
           Double(s.LagBytes()));
  b->Gauge("walpost_last_message_received_timestamp_seconds", "When the server last sent anything.",
           Seconds(s.last_frame_at));
  b->Gauge("walpost_last_event_delivered_timestamp_seconds",
           "When Kafka last acknowledged an event.", Seconds(s.counters.last_delivered_at));
}

// A figure that is not known has no family: 0 would be an answer.
void AddGauge(const std::string& name, const std::string& help, const std::optional<double>& value,
              Builder* b) {
  if (value) {
    b->Gauge(name, help, *value);
  }
}

void AddCounter(const std::string& name, const std::string& help,
                const std::optional<std::uint64_t>& value, Builder* b) {
  if (value) {
    b->Counter(name, help, Double(*value));
  }
}

void AddWalRoom(const WalRoom& room, Builder* b) {
  AddGauge("walpost_slot_wal_limit_bytes",
           "WAL the server keeps for a slot at most, infinite without a limit.", room.limit_bytes,
           b);
  AddGauge("walpost_slot_safe_wal_bytes",
           "WAL that may be written before the slot may be lost, infinite without a limit.",
           room.safe_bytes, b);
  AddGauge("walpost_slot_wal_exhaustion_seconds",
           "How long that lasts at the rate at which WAL is written.", room.seconds_left, b);
}

void AddSlot(const base::SlotFigures& slot, Builder* b) {
  b->Gauge("walpost_slot_active", "1 while a connection reads the slot.", slot.active ? 1 : 0);
  b->Start("walpost_slot_wal_status", "1 for the wal_status the slot has, 0 for the others.",
           MetricType::Gauge);
  for (const char* status : {"reserved", "extended", "unreserved", "lost"}) {
    b->Add({{"status", status}}, slot.wal_status == status ? 1 : 0);
  }
  b->Gauge("walpost_slot_invalidated", "1 when nobody can read the slot any more.",
           slot.lost() ? 1 : 0);
  b->Gauge("walpost_slot_retained_bytes", "WAL the server keeps for the slot.",
           Double(slot.retained_bytes));
  AddCounter("walpost_slot_spilled_transactions_total",
             "Transactions the server wrote to disk while decoding.", slot.spilled_transactions, b);
  AddCounter("walpost_slot_spilled_bytes_total", "Bytes of them.", slot.spilled_bytes, b);
  AddCounter("walpost_slot_decoded_bytes_total", "Bytes of transactions the server decoded.",
             slot.decoded_bytes, b);
}

void AddPartitions(const std::vector<base::OutboxPartitions>& tables, Builder* b) {
  if (tables.empty()) {
    return;
  }
  b->Start("walpost_outbox_partitions", "Partitions of an outbox table.", MetricType::Gauge);
  for (const base::OutboxPartitions& table : tables) {
    b->Add({{"table", table.table}}, Double(table.count));
  }
  b->Start("walpost_outbox_oldest_partition_end_timestamp_seconds",
           "When the oldest partition of an outbox table ends.", MetricType::Gauge);
  for (const base::OutboxPartitions& table : tables) {
    b->Add({{"table", table.table}}, Seconds(table.oldest_end));
  }
  b->Start("walpost_outbox_newest_partition_end_timestamp_seconds",
           "When the newest partition of an outbox table ends.", MetricType::Gauge);
  for (const base::OutboxPartitions& table : tables) {
    b->Add({{"table", table.table}}, Seconds(table.newest_end));
  }
}

void AddMonitor(const MonitorView& monitor, Builder* b) {
  if (!monitor.enabled) {
    return;
  }
  b->Gauge("walpost_monitor_up", "1 when the newest look by monitor.conninfo went well.",
           monitor.up ? 1 : 0);
  b->Gauge("walpost_monitor_last_success_timestamp_seconds", "When a look last went well.",
           Seconds(monitor.last_success));
  if (!monitor.figures) {
    return;
  }
  b->Gauge("walpost_monitor_in_recovery", "1 when monitor.conninfo reaches a standby.",
           monitor.figures->in_recovery ? 1 : 0);
  if (monitor.figures->slot) {
    AddSlot(*monitor.figures->slot, b);
  }
  AddPartitions(monitor.figures->partitions, b);
}

struct BrokerMetric {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const base::BrokerFigures& broker);
};

constexpr BrokerMetric kBrokerMetrics[] = {
    {"walpost_kafka_broker_up", "1 while connected to the broker.", MetricType::Gauge,
     [](const base::BrokerFigures& b) { return b.up ? 1.0 : 0.0; }},
    {"walpost_kafka_broker_round_trip_p99_seconds",
     "From a request to its answer, 99th percentile of the last interval.", MetricType::Gauge,
     [](const base::BrokerFigures& b) { return b.round_trip_p99; }},
    {"walpost_kafka_broker_throttle_max_seconds",
     "Longest time the broker asked to wait in the last interval, by its quotas.",
     MetricType::Gauge, [](const base::BrokerFigures& b) { return b.throttle_max; }},
    {"walpost_kafka_broker_queued_requests", "Requests not sent yet.", MetricType::Gauge,
     [](const base::BrokerFigures& b) { return Double(b.queued_requests); }},
    {"walpost_kafka_broker_waiting_requests", "Requests sent and not answered yet.",
     MetricType::Gauge, [](const base::BrokerFigures& b) { return Double(b.waiting_requests); }},
    {"walpost_kafka_broker_send_errors_total", "Requests that could not be sent.",
     MetricType::Counter, [](const base::BrokerFigures& b) { return Double(b.send_errors); }},
    {"walpost_kafka_broker_receive_errors_total", "Answers that could not be received.",
     MetricType::Counter, [](const base::BrokerFigures& b) { return Double(b.receive_errors); }},
    {"walpost_kafka_broker_retries_total", "Requests sent once more.", MetricType::Counter,
     [](const base::BrokerFigures& b) { return Double(b.retries); }},
    {"walpost_kafka_broker_timeouts_total", "Requests without an answer in time.",
     MetricType::Counter, [](const base::BrokerFigures& b) { return Double(b.timeouts); }},
    {"walpost_kafka_broker_disconnects_total", "Connections to the broker that ended.",
     MetricType::Counter, [](const base::BrokerFigures& b) { return Double(b.disconnects); }},
};

void AddBrokers(const std::vector<base::BrokerFigures>& brokers, Builder* b) {
  if (brokers.empty()) {
    return;
  }
  for (const BrokerMetric& metric : kBrokerMetrics) {
    b->Start(metric.name, metric.help, metric.type);
    for (const base::BrokerFigures& broker : brokers) {
      b->Add({{"broker", broker.address}}, metric.value(broker));
    }
  }
}

// No family without a sample.
void AddLabelled(const std::string& name, const std::string& help,
                 const std::pair<const char*, const char*>& labels,
                 const std::vector<LabelledCount>& counts, Builder* b) {
  if (counts.empty()) {
    return;
  }
  b->Start(name, help, MetricType::Counter);
  for (const LabelledCount& each : counts) {
    b->Add({{labels.first, each.first}, {labels.second, each.second}}, Double(each.count));
  }
}

void AddEvents(const Snapshot& s, Builder* b) {
  b->Start("walpost_events_received_total", "Events taken from the stream.", MetricType::Counter);
  for (const auto& [table, count] : s.counters.received_by_table) {
    b->Add({{"table", table}}, Double(count));
  }
  b->Start("walpost_events_delivered_total", "Events acknowledged by Kafka.", MetricType::Counter);
  for (const auto& [topic, count] : s.delivered_by_topic) {
    b->Add({{"topic", topic}}, Double(count));
  }
  b->Counter("walpost_events_dead_lettered_total",
             "Events that became dead letters: rows of walpost.dead_letters.",
             Double(s.counters.events_dead_lettered));
  b->Counter("walpost_events_parked_total",
             "Events parked behind an undeliverable one of their key.",
             Double(s.counters.events_parked));
  b->Gauge("walpost_parked_keys", "Keys whose events wait in walpost.dead_letters.",
           Double(s.parked_keys));
  b->Counter("walpost_events_skipped_total", "Events skipped by policy.",
             Double(s.counters.events_skipped));
  AddLabelled("walpost_events_failed_total", "Events that could not be delivered as they are.",
              {"topic", "reason"}, s.failed_by_topic, b);
  b->Counter("walpost_events_discarded_total",
             "Events given up in memory at a halt; they come again from the slot.",
             Double(s.counters.events_discarded));
  b->Counter("walpost_events_repeated_total",
             "Events the server sent again and that were already taken.",
             Double(s.counters.events_repeated));
  b->Counter("walpost_changes_ignored_total", "Changes received that are not outbox events.",
             Double(s.counters.changes_ignored));
  b->Counter("walpost_transactions_total", "Transactions received.",
             Double(s.counters.transactions));
  b->Counter("walpost_bytes_received_total", "Bytes of replication frames received.",
             Double(s.counters.bytes_received));
  b->Counter("walpost_bytes_delivered_total",
             "Bytes of records acknowledged, as accounted in flight.",
             Double(s.counters.bytes_delivered));
  b->Start("walpost_transaction_size_events", "Events of a transaction that has any.",
           MetricType::Histogram);
  b->AddHistogram({}, base::SizeHistogram::kUpperBounds, s.counters.transaction_sizes.counts,
                  Double(s.counters.transaction_sizes.sum));
  b->Start("walpost_delivery_delay_seconds",
           "From commit in the database to acknowledgement by Kafka.", MetricType::Histogram);
  b->AddHistogram({}, s.counters.delivery_delay);
  b->Start("walpost_stage_duration_seconds",
           "Where that time goes, by batch: to walpost, through it, through Kafka.",
           MetricType::Histogram);
  for (const auto& [stage, histogram] : s.stages) {
    b->AddHistogram({{"stage", stage}}, histogram);
  }
}

void AddFlow(const Snapshot& s, Builder* b) {
  b->Gauge("walpost_inflight_events", "Events taken and not yet acknowledged.",
           Double(s.in_flight_events));
  b->Gauge("walpost_inflight_bytes", "Their accounted bytes.", Double(s.in_flight_bytes));
  b->Gauge("walpost_inflight_limit_bytes", "Reading pauses at this many bytes in flight.",
           Double(s.in_flight_bytes_max));
  b->Gauge("walpost_oldest_undelivered_commit_timestamp_seconds",
           "Commit time of the oldest event in flight, 0 when there is none.",
           Seconds(s.oldest_undelivered_commit));
  b->Counter("walpost_backpressure_seconds_total", "Time spent connected without reading.",
             Double(s.counters.backpressure_ms) / 1e3);
  AddLabelled("walpost_reconnects_total", "Connections lost or rejected.", {"peer", "reason"},
              s.reconnects_by_reason, b);
  b->Counter("walpost_producer_sessions_total", "Kafka producers opened.",
             Double(s.counters.producer_sessions));
  b->Start("walpost_producer_recreated_total", "Kafka producers made after the first.",
           MetricType::Counter);
  for (const auto& [reason, count] : s.producers_by_reason) {
    b->Add({{"reason", reason}}, Double(count));
  }
  b->Counter("walpost_duplicates_possible_total",
             "Records sent again that Kafka may have had already.",
             Double(s.duplicates_possible_total));
  b->Counter("walpost_records_resubmitted_total", "Records submitted again to a later producer.",
             Double(s.counters.records_resubmitted));
}

void AddSchemas(const Snapshot& s, Builder* b) {
  b->Gauge("walpost_schemas", "Schemas that events need of the Schema Registry.",
           Double(s.schemas_known));
  b->Counter("walpost_schema_lookups_total", "Answers of the Schema Registry about a schema.",
             Double(s.schema_look_ups_total));
  b->Counter("walpost_schema_rejections_total", "Answers that no event can go out with.",
             Double(s.schema_rejections_total));
  b->Counter("walpost_schema_failures_total", "Times the Schema Registry could not be asked.",
             Double(s.schema_failures_total));
}

void AddProcess(Builder* b) {
  const ProcessMetrics process = ReadProcessMetrics();
  b->Counter("process_cpu_seconds_total", "CPU time used.", process.cpu_seconds);
  b->Gauge("process_resident_memory_bytes", "Resident memory.", process.resident_bytes);
  b->Gauge("process_resident_memory_peak_bytes", "Highest resident memory so far.",
           process.resident_peak_bytes);
  b->Gauge("process_virtual_memory_bytes", "Virtual memory.", process.virtual_bytes);
  b->Gauge("process_open_fds", "Open file descriptors.", process.open_fds);
  b->Gauge("process_max_fds", "Limit of open file descriptors.", process.max_fds);
  b->Gauge("process_threads", "Threads.", process.threads);
  b->Gauge("process_start_time_seconds", "When the process started.", process.start_time_seconds);
}

}  // namespace

std::string RenderMetrics(const Snapshot& snapshot, const std::string& version) {
  Builder builder(snapshot.name);
  AddState(snapshot, version, &builder);
  AddPositions(snapshot, &builder);
  AddWalRoom(snapshot.wal_room, &builder);
  AddMonitor(snapshot.monitor, &builder);
  AddEvents(snapshot, &builder);
  AddFlow(snapshot, &builder);
  AddBrokers(snapshot.brokers, &builder);
  AddSchemas(snapshot, &builder);
  AddProcess(&builder);
  return builder.Serialize();
}

}  // namespace walpost::observe
