// ParkTest - a pipeline that parks what is undeliverable, and the commands that release a key.
#pragma once

#include <string>
#include <vector>

#include "envelope/letter.h"
#include "pipeline_fixture.h"

namespace walpost::pipeline {

class ParkTest : public PipelineFixture {
 protected:
  ParkTest() { options_.on_undeliverable = OnUndeliverable::kPark; }

  // "a1", which its topic refuses, and so it and `later` are parked.
  void ParkA(std::uint64_t commit_lsn, const std::vector<std::string>& ids) {
    sink_.Refuse(pipeline().tracker().next_sequence(),
                 delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"}, "orders");
    Transaction(commit_lsn, ids);
    DeliverAll();
  }

  // Commands are looked for, and what follows is on its way.
  void Look() {
    Advance(ParkingLot::kReadEvery);
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

  // As another instance would write it.
  void AppendDecision(envelope::LetterAction action, const std::string& key, std::int64_t answers,
                      const std::string& through) {
    AppendCommand(action, "orders", key);
    log_.back().letter.kind = envelope::LetterKind::kDecision;
    log_.back().letter.answers = answers;
    log_.back().letter.through = through;
  }

  // kind:action or kind:id of what stands in the log.
  std::vector<std::string> Log() {
    ServeLetters();
    std::vector<std::string> texts;
    for (const envelope::LoggedLetter& logged : log_) {
      const envelope::Letter& letter = logged.letter;
      const bool event = letter.kind == envelope::LetterKind::kLetter ||
                         letter.kind == envelope::LetterKind::kParked;
      texts.push_back(std::string(LetterKindName(letter.kind)) + ":" +
                      (event ? letter.id : std::string(LetterActionName(letter.action))));
    }
    return texts;
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
