#include "observe/metrics.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "observe/http_server.h"
#include "unit/observe/prometheus_text.h"
#include "unit/observe/sample.h"

namespace walpost::observe {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

PrometheusText Metrics(const Snapshot& snapshot) {
  PrometheusText metrics(RenderMetrics(snapshot, "1.2.3"));
  EXPECT_THAT(metrics.errors, IsEmpty());
  return metrics;
}

TEST(MetricsTest, TextIsWhatAScraperReads) {
  for (const Snapshot& snapshot : {Snapshot(), Sample()}) {
    const PrometheusText metrics = Metrics(snapshot);
    EXPECT_GT(metrics.families.size(), 30u);
    for (const auto& [name, family] : metrics.families) {
      EXPECT_THAT(family.help, EndsWith(".")) << name;
      EXPECT_NE(family.type, "") << name;
    }
  }
}

// The process_ names are the ones that dashboards of any program look for.
TEST(MetricsTest, NamesAreOursOrEveryProcess) {
  for (const auto& [name, family] : Metrics(Sample()).families) {
    EXPECT_THAT(name, AnyOf(StartsWith("walpost_"), StartsWith("process_")));
    if (family.type == "counter") {
      EXPECT_THAT(name, EndsWith("_total"));
    } else {
      EXPECT_THAT(name, Not(EndsWith("_total")));
    }
  }
}

// Dashboards and alerts are built on these.
TEST(MetricsTest, NamesThatOthersBuildOnStay) {
  const PrometheusText metrics = Metrics(Sample());
  for (const char* name : {"walpost_up",
                           "walpost_state",
                           "walpost_halted",
                           "walpost_build_info",
                           "walpost_slot_lag_bytes",
                           "walpost_wal_acked_lsn_bytes",
                           "walpost_wal_safe_lsn_bytes",
                           "walpost_wal_received_lsn_bytes",
                           "walpost_events_received_total",
                           "walpost_events_delivered_total",
                           "walpost_delivery_delay_seconds",
                           "walpost_inflight_bytes",
                           "walpost_reconnects_total",
                           "walpost_backpressure_seconds_total",
                           "walpost_source_connected",
                           "walpost_sink_connected",
                           "process_resident_memory_bytes",
                           "process_cpu_seconds_total",
                           "process_open_fds",
                           "process_max_fds"}) {
    EXPECT_THAT(metrics.families, Contains(Key(name)));
  }
}

TEST(MetricsTest, EverySampleNamesItsPipeline) {
  for (const auto& [name, family] : Metrics(Sample()).families) {
    for (const PrometheusSample& sample : family.samples) {
      EXPECT_THAT(sample.labels, Contains(Pair("pipeline", "shop"))) << sample.name;
    }
  }
}

TEST(MetricsTest, ValuesAreThoseOfTheSnapshot) {
  const PrometheusText metrics = Metrics(Sample());
  EXPECT_EQ(metrics.Value("walpost_build_info",
                          {{"version", "1.2.3"}, {"librdkafka", "2.0.2"}, {"libpq", "15.18"}}),
            1);
  EXPECT_EQ(metrics.Value("walpost_wal_received_lsn_bytes"), 0x300);
  EXPECT_EQ(metrics.Value("walpost_wal_safe_lsn_bytes"), 0x200);
  EXPECT_EQ(metrics.Value("walpost_wal_acked_lsn_bytes"), 0x100);
  EXPECT_EQ(metrics.Value("walpost_server_wal_lsn_bytes"), 0x500);
  EXPECT_EQ(metrics.Value("walpost_slot_lag_bytes"), 0x400);
  EXPECT_EQ(metrics.Value("walpost_last_message_received_timestamp_seconds"), 1'700'000'005);
  EXPECT_EQ(metrics.Value("walpost_last_event_delivered_timestamp_seconds"), 1'700'000'007);
  EXPECT_EQ(metrics.Value("walpost_oldest_undelivered_commit_timestamp_seconds"), 1'700'000'006);
  EXPECT_EQ(metrics.Value("walpost_transactions_total"), 11);
  EXPECT_EQ(metrics.Value("walpost_bytes_received_total"), 12);
  EXPECT_EQ(metrics.Value("walpost_bytes_delivered_total"), 13);
  EXPECT_EQ(metrics.Value("walpost_events_dead_lettered_total"), 16);
  EXPECT_EQ(metrics.Value("walpost_events_parked_total"), 17);
  EXPECT_EQ(metrics.Value("walpost_parked_keys"), 3);
  EXPECT_EQ(metrics.Value("walpost_events_skipped_total"), 18);
  EXPECT_EQ(metrics.Value("walpost_events_repeated_total"), 19);
  EXPECT_EQ(metrics.Value("walpost_events_discarded_total"), 20);
  EXPECT_EQ(metrics.Value("walpost_changes_ignored_total"), 21);
  EXPECT_EQ(metrics.Value("walpost_reconnects_total", {{"peer", "postgresql"}, {"reason", "lost"}}),
            20);
  EXPECT_EQ(
      metrics.Value("walpost_reconnects_total", {{"peer", "kafka"}, {"reason", "brokers_down"}}),
      42);
  EXPECT_EQ(metrics.Value("walpost_events_failed_total",
                          {{"topic", "orders"}, {"reason", "topic_unknown"}}),
            43);
  EXPECT_EQ(metrics.Value("walpost_producer_recreated_total", {{"reason", "failure"}}), 44);
  EXPECT_EQ(metrics.Value("walpost_producer_recreated_total", {{"reason", "settings"}}), 45);
  EXPECT_EQ(metrics.Value("walpost_duplicates_possible_total"), 41);
  EXPECT_EQ(metrics.Value("walpost_records_resubmitted_total"), 23);
  EXPECT_EQ(metrics.Value("walpost_producer_sessions_total"), 2);
  EXPECT_EQ(metrics.Value("walpost_backpressure_seconds_total"), 2.5);
  EXPECT_EQ(metrics.Value("walpost_inflight_events"), 24);
  EXPECT_EQ(metrics.Value("walpost_inflight_bytes"), 25);
  EXPECT_EQ(metrics.Value("walpost_inflight_limit_bytes"), 26);
  EXPECT_EQ(metrics.Value("walpost_source_connected"), 1);
  EXPECT_EQ(metrics.Value("walpost_sink_connected"), 1);
}

TEST(MetricsTest, RoomOfTheSlotIsThatOfTheSnapshot) {
  Snapshot snapshot = Sample();
  const PrometheusText metrics = Metrics(snapshot);
  EXPECT_EQ(metrics.Value("walpost_slot_wal_limit_bytes"), 65'536);
  EXPECT_EQ(metrics.Value("walpost_slot_safe_wal_bytes"), 60'000);
  EXPECT_EQ(metrics.Value("walpost_slot_wal_exhaustion_seconds"), 6'000);
  snapshot.wal_room.safe_bytes = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isinf(Metrics(snapshot).Value("walpost_slot_safe_wal_bytes")));
}

// 0 would say that there is no room left.
TEST(MetricsTest, WhatIsNotKnownIsNotShown) {
  const PrometheusText metrics = Metrics(Snapshot());
  for (const auto& [name, family] : metrics.families) {
    EXPECT_THAT(name, Not(StartsWith("walpost_slot_wal")));
    EXPECT_THAT(name, Not(StartsWith("walpost_slot_safe")));
    EXPECT_THAT(name, Not(StartsWith("walpost_monitor")));
    EXPECT_THAT(name, Not(StartsWith("walpost_outbox")));
    EXPECT_THAT(name, Not(StartsWith("walpost_kafka")));
  }
}

TEST(MetricsTest, FiguresOfTheMonitorAreShownWhileItsNewestLookWentWell) {
  Snapshot snapshot = Sample();
  const PrometheusText metrics = Metrics(snapshot);
  EXPECT_EQ(metrics.Value("walpost_monitor_up"), 1);
  EXPECT_EQ(metrics.Value("walpost_monitor_last_success_timestamp_seconds"), 1'700'000'008);
  EXPECT_EQ(metrics.Value("walpost_slot_active"), 1);
  EXPECT_EQ(metrics.Value("walpost_slot_wal_status", {{"status", "extended"}}), 1);
  EXPECT_EQ(metrics.Value("walpost_slot_wal_status", {{"status", "lost"}}), 0);
  EXPECT_EQ(metrics.Value("walpost_slot_invalidated"), 0);
  EXPECT_EQ(metrics.Value("walpost_slot_retained_bytes"), 5'000);
  EXPECT_EQ(metrics.Value("walpost_slot_spilled_transactions_total"), 31);
  EXPECT_EQ(metrics.Value("walpost_slot_spilled_bytes_total"), 32);
  EXPECT_EQ(metrics.Value("walpost_slot_decoded_bytes_total"), 33);
  EXPECT_EQ(metrics.Value("walpost_outbox_partitions", {{"table", "outbox.events"}}), 8);
  snapshot.monitor.up = false;
  snapshot.monitor.figures.reset();
  const PrometheusText failed = Metrics(snapshot);
  EXPECT_EQ(failed.Value("walpost_monitor_up"), 0);
  EXPECT_THAT(failed.families, Not(Contains(Key("walpost_slot_retained_bytes"))));
}

// wal_status is `lost` only for one of the reasons.
TEST(MetricsTest, SlotIsInvalidatedByStatusOrByReason) {
  Snapshot snapshot = Sample();
  snapshot.monitor.figures->slot->wal_status = "lost";
  EXPECT_EQ(Metrics(snapshot).Value("walpost_slot_invalidated"), 1);
  snapshot.monitor.figures->slot->wal_status = "reserved";
  snapshot.monitor.figures->slot->invalidation_reason = "rows_removed";
  EXPECT_EQ(Metrics(snapshot).Value("walpost_slot_invalidated"), 1);
}

TEST(MetricsTest, BrokersAreShownEachByItsAddress) {
  const PrometheusText metrics = Metrics(Sample());
  const auto value = [&](const std::string& name) {
    return metrics.Value("walpost_kafka_broker_" + name, {{"broker", "k1:9092"}});
  };
  EXPECT_EQ(value("up"), 1);
  EXPECT_EQ(metrics.Value("walpost_kafka_broker_up", {{"broker", "k2:9092"}}), 0);
  EXPECT_EQ(value("round_trip_p99_seconds"), 0.25);
  EXPECT_EQ(value("throttle_max_seconds"), 0.5);
  EXPECT_EQ(value("queued_requests"), 34);
  EXPECT_EQ(value("waiting_requests"), 35);
  EXPECT_EQ(value("send_errors_total"), 36);
  EXPECT_EQ(value("receive_errors_total"), 37);
  EXPECT_EQ(value("retries_total"), 38);
  EXPECT_EQ(value("timeouts_total"), 39);
  EXPECT_EQ(value("disconnects_total"), 40);
}

TEST(MetricsTest, EventsAreCountedByTableAndByTopic) {
  const PrometheusText metrics = Metrics(Sample());
  EXPECT_EQ(metrics.Value("walpost_events_received_total", {{"table", "outbox.events"}}), 9);
  EXPECT_EQ(metrics.Value("walpost_events_received_total", {{"table", "outbox.more"}}), 5);
  EXPECT_EQ(metrics.Value("walpost_events_delivered_total", {{"topic", "orders"}}), 15);
  EXPECT_EQ(metrics.Value("walpost_events_delivered_total", {{"topic", "quiet"}}), 0);
}

// A counter that shows 1.23457e+10 stands still for thousands of events.
TEST(MetricsTest, LargeCountersKeepTheirLastDigit) {
  Snapshot snapshot = Sample();
  snapshot.counters.transactions = 12'345'678'901'234;
  snapshot.confirmed_lsn = base::Lsn(0x0012'3456'789A'BCDEu);
  const PrometheusText metrics = Metrics(snapshot);
  EXPECT_EQ(metrics.Value("walpost_transactions_total"), 12'345'678'901'234.0);
  EXPECT_EQ(metrics.Value("walpost_wal_acked_lsn_bytes"),
            static_cast<double>(0x0012'3456'789A'BCDE));
}

TEST(MetricsTest, ExactlyOneStateIsSet) {
  for (const base::State state : base::kAllStates) {
    Snapshot snapshot = Sample();
    snapshot.state = state;
    const PrometheusText metrics = Metrics(snapshot);
    for (const base::State other : base::kAllStates) {
      EXPECT_EQ(metrics.Value("walpost_state", {{"state", std::string(base::StateName(other))}}),
                other == state ? 1 : 0);
    }
    const bool up = state == base::State::kStreaming || state == base::State::kBackpressured;
    EXPECT_EQ(metrics.Value("walpost_up"), up ? 1 : 0) << base::StateName(state);
  }
}

TEST(MetricsTest, HaltReasonIsSetOnlyWhileHalted) {
  Snapshot snapshot = Sample();
  snapshot.halt_reason = base::HaltReason::kSlotInvalidated;
  EXPECT_EQ(Metrics(snapshot).Value("walpost_halted", {{"reason", "slot_invalidated"}}), 0);
  snapshot.state = base::State::kHalted;
  const PrometheusText metrics = Metrics(snapshot);
  for (const base::HaltReason reason : base::kAllHaltReasons) {
    const std::string name(base::HaltReasonName(reason));
    EXPECT_EQ(metrics.Value("walpost_halted", {{"reason", name}}),
              name == "slot_invalidated" ? 1 : 0);
  }
}

TEST(MetricsTest, LagIsZeroUntilSomethingIsConfirmedAndNeverNegative) {
  Snapshot snapshot = Sample();
  snapshot.confirmed_lsn = base::Lsn();
  EXPECT_EQ(Metrics(snapshot).Value("walpost_slot_lag_bytes"), 0);
  snapshot.confirmed_lsn = base::Lsn(0x600);
  EXPECT_EQ(Metrics(snapshot).Value("walpost_slot_lag_bytes"), 0);
}

TEST(MetricsTest, DelayBucketsAreCumulativeAndEndWithAll) {
  const PrometheusText metrics = Metrics(Sample());
  const std::string bucket = "walpost_delivery_delay_seconds_bucket";
  double before = 0;
  for (const PrometheusSample& sample :
       metrics.families.at("walpost_delivery_delay_seconds").samples) {
    if (sample.name == bucket) {
      EXPECT_GE(sample.value, before);
      before = sample.value;
    }
  }
  EXPECT_EQ(metrics.Value(bucket, {{"le", "0.001"}}), 0);
  EXPECT_EQ(metrics.Value(bucket, {{"le", "0.002"}}), 1);
  EXPECT_EQ(metrics.Value(bucket, {{"le", "600"}}), 2);
  EXPECT_EQ(metrics.Value(bucket, {{"le", "+Inf"}}), 3);
  EXPECT_EQ(metrics.Value("walpost_delivery_delay_seconds_count"), 3);
  EXPECT_NEAR(metrics.Value("walpost_delivery_delay_seconds_sum"), 1'000.0045, 1e-6);
}

TEST(MetricsTest, TransactionsAreShownByTheirSize) {
  const PrometheusText metrics = Metrics(Sample());
  const std::string name = "walpost_transaction_size_events";
  EXPECT_EQ(metrics.Value(name + "_bucket", {{"le", "1"}}), 1);
  EXPECT_EQ(metrics.Value(name + "_bucket", {{"le", "5"}}), 1);
  EXPECT_EQ(metrics.Value(name + "_bucket", {{"le", "10"}}), 2);
  EXPECT_EQ(metrics.Value(name + "_bucket", {{"le", "1000000"}}), 2);
  EXPECT_EQ(metrics.Value(name + "_bucket", {{"le", "+Inf"}}), 3);
  EXPECT_EQ(metrics.Value(name + "_sum"), 2'000'008);
}

TEST(MetricsTest, StagesHaveAHistogramEach) {
  const PrometheusText metrics = Metrics(Sample());
  const std::string name = "walpost_stage_duration_seconds";
  EXPECT_EQ(metrics.Value(name + "_bucket", {{"stage", "queue"}, {"le", "0.01"}}), 0);
  EXPECT_EQ(metrics.Value(name + "_bucket", {{"stage", "queue"}, {"le", "0.02"}}), 1);
  EXPECT_EQ(metrics.Value(name + "_count", {{"stage", "queue"}}), 1);
}

TEST(MetricsTest, LabelsAreEscaped) {
  const std::string nasty = "a\"b\\c\nd}{,=";
  Snapshot snapshot = Sample();
  snapshot.name = nasty;
  snapshot.counters.received_by_table = {{nasty, 5}};
  const PrometheusText metrics = Metrics(snapshot);
  EXPECT_EQ(metrics.Value("walpost_events_received_total", {{"table", nasty}}), 5);
  EXPECT_THAT(metrics.families.at("walpost_up").samples.at(0).labels,
              Contains(Pair("pipeline", nasty)));
}

TEST(ProcessMetricsTest, ValuesArePlausible) {
  const ProcessMetrics metrics = ReadProcessMetrics();
  EXPECT_GT(metrics.resident_bytes, 1e6);
  EXPECT_GE(metrics.resident_peak_bytes, metrics.resident_bytes / 2);
  EXPECT_GT(metrics.virtual_bytes, metrics.resident_bytes);
  EXPECT_GE(metrics.open_fds, 3);
  EXPECT_GT(metrics.max_fds, metrics.open_fds);
  EXPECT_GE(metrics.threads, 1);
  EXPECT_GE(metrics.cpu_seconds, 0);
}

TEST(ProcessMetricsTest, StartTimeIsBeforeNowAndNotLongAgo) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double started = ReadProcessMetrics().start_time_seconds;
  EXPECT_LE(started, now + 1.5);  // the kernel counts from a boot time in whole seconds
  EXPECT_GT(started, now - 3'600);
}

TEST(ProcessMetricsTest, OpenFilesAndThreadsAreCounted) {
  const ProcessMetrics before = ReadProcessMetrics();
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  std::thread thread([&] {
    std::unique_lock<std::mutex> lock(mutex);
    done_changed.wait(lock, [&] { return done; });
  });
  const ProcessMetrics after = ReadProcessMetrics();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
  done_changed.notify_one();
  thread.join();
  close(fd);
  EXPECT_EQ(after.open_fds, before.open_fds + 1);
  EXPECT_EQ(after.threads, before.threads + 1);
}

TEST(ProcessMetricsTest, CpuTimeGrowsWithWork) {
  const double before = ReadProcessMetrics().cpu_seconds;
  volatile unsigned sink = 0;
  const std::clock_t until = std::clock() + CLOCKS_PER_SEC / 10;
  while (std::clock() < until) {
    sink = sink + 1;
  }
  EXPECT_GE(ReadProcessMetrics().cpu_seconds, before + 0.05);
}

}  // namespace
}  // namespace walpost::observe
