// DispatcherTest - a Dispatcher over a fake sink, and events of keys a, b, c, d in topic "orders".
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/dispatcher.h"
#include "support/fake_sink.h"

namespace walpost::pipeline {

using std::chrono::milliseconds;

inline constexpr milliseconds kBackOff{100};

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(milliseconds unknown_topic_wait = milliseconds(0))
      : unknown_topic_wait_(unknown_topic_wait) {}

  void SetUp() override {
    counters_.received_by_table.emplace_back("outbox.events", 0);
    dispatcher_.Start(now_);
  }

  // Events of keys a, b, c, ... which the fake puts on partitions of their own.
  void Add(int count) {
    Track(count);
    dispatcher_.Pump();
  }

  void AddTo(const std::string& topic) {
    topic_ = *topics_.insert(topic).first;
    Add(1);
    topic_ = "orders";
  }

  // Until the sink holds it, with what comes meanwhile.
  void AwaitOutstanding(delivery::Sequence sequence, milliseconds step) {
    for (int i = 0; i < 10'000; ++i) {
      const std::vector<delivery::Sequence> outstanding = sink_.outstanding();
      if (std::count(outstanding.begin(), outstanding.end(), sequence) != 0) {
        return;
      }
      Poll(std::min(step, milliseconds(100)));
    }
    FAIL() << "event " << sequence << " was not sent";
  }

  void Track(int count) {
    tracker_.BeginTransaction(base::Lsn(commit_lsn_ += 100));
    for (int i = 0; i < count; ++i) {
      const delivery::Sequence sequence = tracker_.next_sequence();
      const std::string text = "event " + std::to_string(sequence);
      envelope::Record record;
      record.block = tracker_.arena()->Allocate(text.size());
      text.copy(record.block.data, text.size());
      record.value = std::string_view(record.block.data, text.size());
      record.topic = topic_;
      record.key = kKeys.substr(sequence % kKeys.size(), 1);
      tracker_.Add(record, 0, base::WallTime());
    }
    tracker_.CommitTransaction(base::Lsn(commit_lsn_ + 8));
  }

  // As while reading: each event may be followed by another at once.
  void Gather(int count) {
    for (int i = 0; i < count; ++i) {
      Track(1);
      dispatcher_.Gather(now_);
    }
  }

  void Poll(milliseconds later = milliseconds(0)) {
    now_.mono += later;
    now_.wall += later;
    dispatcher_.Poll(now_);
  }

  // Lets the session end, and waits for the next.
  void NextSession() {
    const std::size_t before = sink_.sessions().size();
    for (int i = 0; i < 10 && sink_.sessions().size() == before; ++i) {
      Poll(kBackOff);
    }
    ASSERT_EQ(sink_.sessions().size(), before + 1);
  }

  // Everything outstanding is delivered, until nothing is tracked and a pipelined producer is back.
  void DeliverToTheEnd() {
    for (int i = 0; i < 100 && !(tracker_.empty() && dispatcher_.caught_up()); ++i) {
      if (!sink_.closed()) {
        sink_.DeliverAll();
      }
      Poll(kBackOff);
    }
    EXPECT_TRUE(tracker_.empty());
    EXPECT_TRUE(dispatcher_.caught_up());
  }

  // The values in the order they became visible, of the partition of `key`.
  std::vector<std::string> Visible(char key) {
    std::vector<std::string> values;
    for (const walpost::testing::FakeSink::Submission& each : sink_.Log(
             "orders", static_cast<unsigned char>(key) % walpost::testing::FakeSink::kPartitions)) {
      values.push_back(*each.value);
    }
    return values;
  }

  delivery::Sink::Mode mode() const { return sink_.session().mode; }

  static constexpr std::string_view kKeys = "abcd";

  base::Now now_{base::MonotonicTime(std::chrono::hours(1)), base::WallTime()};
  std::uint64_t commit_lsn_ = 0;
  delivery::Tracker tracker_;
  walpost::testing::FakeSink sink_;
  Counters counters_;
  PipelineOptions options_;
  DeadLetters dead_letters_{options_, &tracker_};
  Undeliverables undeliverables_{options_, &tracker_, &counters_, &dead_letters_};
  const milliseconds unknown_topic_wait_;
  std::set<std::string> topics_;
  std::string_view topic_ = "orders";
  Dispatcher dispatcher_{
      {base::BackoffOptions{kBackOff, kBackOff, kBackOff}, 1, unknown_topic_wait_,
       std::chrono::microseconds(3'000), std::chrono::microseconds(20'000)},
      &tracker_,
      &sink_,
      &counters_,
      &undeliverables_,
      &dead_letters_};
};

}  // namespace walpost::pipeline
