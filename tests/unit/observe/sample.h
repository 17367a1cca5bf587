// Sample - a snapshot in which every field has a value of its own.
#pragma once

#include <chrono>

#include "observe/snapshot.h"

namespace walpost::observe {

inline base::WallTime At(std::int64_t seconds) {
  return base::WallTime(std::chrono::microseconds(seconds * 1'000'000));
}

inline Snapshot Sample() {
  Snapshot s;
  s.name = "shop";
  s.slot = "shop_slot";
  s.publication = "shop_pub";
  s.state = base::State::kStreaming;
  s.state_since = At(1'700'000'001);
  s.taken_at = At(1'700'000'002);
  s.started_at = At(1'700'000'003);
  s.last_error = {"lost", At(1'700'000'004)};
  s.source_error = {"lost", At(1'700'000'004)};
  s.sink_error = {"down", At(1'700'000'000)};
  s.source_connected = true;
  s.system_identifier = 7'300'000'000'000'000'001;
  s.timeline = 3;
  s.server_version = 150'006;
  s.database = "shopdb";
  s.source_host = "db:5432";
  s.received_lsn = base::Lsn(0x300);
  s.confirmed_lsn = base::Lsn(0x100);
  s.safe_lsn = base::Lsn(0x200);
  s.server_wal_lsn = base::Lsn(0x500);
  s.last_frame_at = At(1'700'000'005);
  s.libraries = {{"librdkafka", "2.0.2"}, {"libpq", "15.18"}};
  s.wal_room = {65'536.0, 60'000.0, 10.0, 6'000.0};
  s.monitor.enabled = true;
  s.monitor.up = true;
  s.monitor.last_success = At(1'700'000'008);
  s.monitor.figures.emplace();
  s.monitor.figures->slot = base::SlotFigures{true, "extended", "", 5'000, 60'000, 31, 32, 33};
  s.monitor.figures->partitions = {{"outbox.events", 8, At(1'700'000'009), At(1'700'000'010)}};
  s.brokers = {{"k1:9092", true, 34, 35, 0.25, 0.5, 36, 37, 38, 39, 40},
               {"k2:9092", false, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
  s.sink_connected = true;
  s.counters.producer_sessions = 2;
  s.counters.transactions = 11;
  s.counters.bytes_received = 12;
  s.counters.bytes_delivered = 13;
  s.counters.events_received = 14;
  s.counters.events_delivered = 15;
  s.counters.events_dead_lettered = 16;
  s.counters.events_parked = 17;
  s.parked_keys = 3;
  s.counters.events_skipped = 18;
  s.counters.events_repeated = 19;
  s.counters.events_discarded = 20;
  s.counters.changes_ignored = 21;
  s.counters.reconnects = 22;
  s.counters.records_resubmitted = 23;
  s.duplicates_possible_total = 41;
  s.reconnects_by_reason = {
      {"postgresql", "lost", 20}, {"postgresql", "slot_in_use", 2}, {"kafka", "brokers_down", 42}};
  s.failed_by_topic = {{"orders", "topic_unknown", 43}};
  s.producers_by_reason = {{"failure", 44}, {"settings", 45}};
  s.counters.transaction_sizes.Add(1);
  s.counters.transaction_sizes.Add(7);
  s.counters.transaction_sizes.Add(2'000'000);
  s.stages.emplace_back("queue", DelayHistogram());
  s.stages.back().second.Add(0.015);
  s.counters.backpressure_ms = 2'500;
  s.counters.received_by_table = {{"outbox.events", 9}, {"outbox.more", 5}};
  s.delivered_by_topic = {{"orders", 15}, {"quiet", 0}};
  s.in_flight_events = 24;
  s.in_flight_bytes = 25;
  s.in_flight_bytes_max = 26;
  s.oldest_undelivered_commit = At(1'700'000'006);
  s.counters.last_delivered_at = At(1'700'000'007);
  s.last_events = {
      {"e2", "OrderPaid", "orders", 1, 42, base::Lsn(0x180), At(1'700'000'001), At(1'700'000'003)},
      {"", "", "orders", -1, -1, base::Lsn(0x170), At(1'700'000'003), At(1'700'000'002)}};
  s.counters.delivery_delay.Add(0.0015);
  s.counters.delivery_delay.Add(0.003);
  s.counters.delivery_delay.Add(1'000);
  return s;
}

}  // namespace walpost::observe
