// ParkTest - a pipeline that parks what is undeliverable, and the decisions that release a key.
#pragma once

#include <string>
#include <vector>

#include "pipeline_fixture.h"

namespace walpost::pipeline {

class ParkTest : public PipelineFixture {
 protected:
  using Decision = base::DeadLetter::Decision;

  ParkTest() { options_.on_undeliverable = OnUndeliverable::kPark; }

  // "a1", which its topic rejects, and so it and `later` are parked.
  void ParkA(std::uint64_t commit_lsn, const std::vector<std::string>& ids) {
    sink_.Reject(pipeline().tracker().next_sequence(),
                 delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"}, "orders");
    Transaction(commit_lsn, ids);
    DeliverAll();
  }

  void RetryA() { dead_letters_.Decide(0, Decision::kRetry, /*of_key=*/true); }

  void DiscardA() { dead_letters_.Decide(0, Decision::kDiscard, /*of_key=*/true); }

  // "b1", as "a1".
  void ParkB(std::uint64_t commit_lsn) {
    sink_.Reject(pipeline().tracker().next_sequence(),
                 delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"}, "orders");
    Transaction(commit_lsn, {"b1"});
    DeliverAll();
  }

  // A record on its way is rejected in a batch, and then alone.
  void RejectAlone(delivery::Sequence sequence) {
    sink_.Fail(sequence, delivery::FailureKind::kTopicInvalid);
    Settle();
    sink_.Fail(sequence, delivery::FailureKind::kTopicInvalid, "now alone");
    Settle();
  }

  // Decisions are looked for, and what follows is on its way.
  void Look() {
    Advance(DeadLetters::kLookEvery);
    Tick();
  }

  // Everything is acknowledged and read, until nothing changes.
  void Run() {
    for (int i = 0; i < 100; ++i) {
      if (!sink_.closed()) {
        sink_.DeliverAll();
      }
      Advance(milliseconds(20));
    }
  }

  std::string MarkOf(char key, std::size_t index) {
    const auto& all = sink_.Log(
        "orders", static_cast<unsigned char>(key) % walpost::testing::FakeSink::kPartitions);
    for (const auto& [name, value] : all[index].headers) {
      if (name == "walpost-redelivery") {
        return value;
      }
    }
    return "";
  }
};

}  // namespace walpost::pipeline
