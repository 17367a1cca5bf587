// HistoryFixture - a pipeline that remembers its progress.
// How: Remembered() is what a process before this one left; Written() is what this one wrote.
#pragma once

#include <optional>
#include <string>

#include "envelope/control_records.h"
#include "pipeline_fixture.h"

namespace walpost::pipeline {

inline constexpr char kTopic[] = "walpost.progress.shop";

class HistoryFixture : public PipelineFixture {
 protected:
  HistoryFixture() {
    options_.name = "shop";
    options_.progress_topic = kTopic;
    facts_.start_lsn = base::Lsn(10);
    facts_.wal_sender_timeout_ms = 6'000;
  }

  // Of a process before this one: it delivered the transaction at 100 and remembered 500.
  void Remembered() {
    base::Progress before;
    before.end_lsn = base::Lsn(500);
    before.last_transactions = {{base::Lsn(100), base::Xid{77}, kCommitTime}};
    facts_.progress = before;
    facts_.start_lsn = base::Lsn(100);
  }

  void ExpectOtherHistory(const std::string& detail) {
    EXPECT_EQ(last_command_, StreamCommand::kClose) << "nothing is confirmed";
    EXPECT_FALSE(TakeStatus());
    ExpectHalted(base::HaltReason::kTimelineChanged, detail);
  }

  std::optional<base::Progress> Written() {
    const auto& log = sink_.Log(kTopic, 0);
    return log.empty() ? std::nullopt : std::optional(*envelope::DecodeProgress(*log.back().value));
  }
};

}  // namespace walpost::pipeline
