// PipelineFixture - a Pipeline between a server that the test plays in wire bytes and a FakeSink,
// on a clock that the test moves.
// How: Connect() first; then frames (Transaction, Keepalive, ...), reports (sink_, Deliver...) and
//   time (Advance). As the runtime does, every helper lets the pipeline Tick afterwards.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outbox_wire.h"
#include "pipeline/pipeline.h"
#include "support/fake_dead_letters.h"
#include "support/fake_sink.h"

namespace walpost::pipeline {

class PipelineFixture : public ::testing::Test {
 protected:
  using milliseconds = std::chrono::milliseconds;

  static constexpr milliseconds kBackOff{100};  // of every kind, without jitter

  PipelineFixture();

  // With options_ as they are now; Connect calls it when nobody did.
  Pipeline& pipeline();

  // The process ends and another begins; Kafka is the same.
  void Restart();

  // --- The server's side ---
  // Expects the pipeline to ask for a connection at `start` now or after a back-off.
  void Connect(base::Lsn start = {}, bool announce = true);
  void SendFrame(const std::string& frame);
  void SendPayload(const std::string& payload);
  // Begin, one event per id, Commit; the key of an event is the first letter of its id.
  void Transaction(std::uint64_t commit_lsn, const std::vector<std::string>& ids);
  void Event(const std::string& id);
  void Keepalive(std::uint64_t wal_end, bool reply_requested = false);
  void End(base::StreamEnd::Kind kind, const std::string& message = "connection reset by peer");
  void EndForOperator(base::HaltReason reason, const std::string& message);
  // An ErrorResponse.
  void Fail(const std::string& sqlstate, const std::string& context);

  // --- Kafka's side ---
  // Everything accepted so far, and what follows from it, is delivered.
  void DeliverAll();
  void Deliver(delivery::Sequence sequence);

  // --- The table of dead letters ---
  // Carries out what the pipeline asks, if anything.
  void ServeDeadLetters();
  // parked:id, dead:id or closed:id, in order.
  std::vector<std::string> Rows() const;

  // --- Time ---
  void Tick() { Advance(milliseconds(0)); }

  void Advance(milliseconds time);

  // --- What the pipeline wants ---
  // What the server would have as confirmed_flush after the next status that is due.
  base::Lsn Confirmed();
  // Ticks until the pipeline has come to rest.
  void Settle();

  std::optional<pgoutput::StandbyStatus> TakeStatus() { return pipeline().TakeStatus(now_); }

  // The ids of a partition in the order they became visible; `key` as in Transaction.
  std::vector<std::string> Visible(char key);

  // events_received = delivered + dead-lettered + parked + skipped + in flight + discarded
  void ExpectAccounted();

  // Lets the halt come to its end: sink closed, slot free, nothing wanted any more.
  void ExpectHalted(base::HaltReason reason, const std::string& detail);

  base::Now now_;
  base::SourceFacts facts_ = EventsFacts();
  PipelineOptions options_;
  walpost::testing::FakeSink sink_;                 // outlives the process, as Kafka does
  walpost::testing::FakeDeadLetters dead_letters_;  // as well
  bool serve_dead_letters_ = true;
  StreamCommand last_command_ = StreamCommand::kNone;
  base::Lsn confirmed_;  // the highest flush of a status taken

 private:
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace walpost::pipeline
