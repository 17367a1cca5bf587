// An intake with one outbox table, outbox.events, that is announced on each connection.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outbox_wire.h"
#include "pipeline/intake.h"

namespace walpost::pipeline {

class IntakeFixture : public ::testing::Test {
 protected:
  void SetUp() override { Reconnect(); }

  void Reconnect() {
    intake_.Leave();
    intake_.Start(facts_);
    Take(walpost::testing::RelationBytes(EventsRelation()));
  }

  void Take(const std::string& payload, base::Lsn start = {}) {
    const std::optional<Halt> halt = intake_.TakePayload(payload, start);
    ASSERT_FALSE(halt) << base::HaltReasonName(halt->reason) << ": " << halt->detail;
  }

  void TakeAll(const std::vector<std::string>& payloads) {
    for (const std::string& payload : payloads) {
      Take(payload);
    }
  }

  // The payload must be rejected.
  Halt Rejected(const std::string& payload, base::Lsn start = {}) {
    const std::optional<Halt> halt = intake_.TakePayload(payload, start);
    EXPECT_TRUE(halt) << "was accepted";
    return halt.value_or(Halt{base::HaltReason::kInitIncomplete, "was accepted"});
  }

  std::string Header(delivery::Sequence sequence, std::string_view name) const {
    for (const envelope::RecordHeader& header : tracker_.entry(sequence).record.headers) {
      if (header.name == name) {
        return std::string(header.value);
      }
    }
    return "(none)";
  }

  std::vector<std::string> Ids() const {
    std::vector<std::string> ids;
    for (auto i = tracker_.oldest_unsettled(); i < tracker_.next_sequence(); ++i) {
      ids.push_back(Header(i, "id"));
    }
    return ids;
  }

  base::SourceFacts facts_ = EventsFacts();
  delivery::Tracker tracker_;
  Counters counters_;
  PipelineOptions options_ = OptionsOf(EventsOutbox());
  DeadLetters dead_letters_{options_, &tracker_};
  Undeliverables undeliverables_{options_, &tracker_, &counters_, &dead_letters_};
  Intake intake_{options_, &tracker_, &counters_, &undeliverables_};
};

}  // namespace walpost::pipeline
