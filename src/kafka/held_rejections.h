// HeldRejections - records that a broker rejected by a right, limit or policy of their topic, and
// that wait until it is known who leads it.
// Why: a leader that is cut off from the controller never learns of a change, so what it says
//   counts only when the brokers agree that it leads. Questions are few, because they take seconds
//   where a broker does not answer, and the next session's look-ups wait behind them.
// How: one question at a time, about one topic and its leaders; its answer serves all that is held
//   for these, and TopicMemory keeps agreement for the next sessions.
// Thread: loop thread; a question runs on a helper thread, and does nothing there when it was given
// up before.
#pragma once

#include <librdkafka/rdkafka.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/blocking_runner.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_look_up.h"

namespace walpost::kafka {

// Classify - the one table from librdkafka's error codes to what they mean for a record.
// Why: a broker's answer judges a record, a topic, or nothing but the producer that asked; mixing
//   them up loses events or halts for nothing. Everything not in the table is kOther.
// Source: rdkafka.h; the same table for operators, with what follows, is docs/failures-kafka.md.
delivery::FailureKind Classify(rd_kafka_resp_err_t error);

// By a right, limit or policy of the topic: these change, and a leader that is cut off from the
// controller never learns of it.
bool IsByRulesOfTheTopic(delivery::FailureKind kind);

class HeldRejections {
 public:
  struct Held {
    delivery::Sequence sequence = 0;
    delivery::Failure failure;
    std::string topic;
    std::vector<std::int32_t> leaders;  // as the producer that sent the record knows them
  };

  // `runner` and `memory` must outlive it.
  HeldRejections(const KafkaOptions& options, base::BlockingRunner* runner, TopicMemory* memory)
      : options_(options), runner_(runner), memory_(memory) {}

  ~HeldRejections() { GiveUp(); }

  HeldRejections(const HeldRejections&) = delete;
  HeldRejections& operator=(const HeldRejections&) = delete;

  void Hold(Held held) { held_.push_back(std::move(held)); }

  // About the topic that was asked about longest ago, unless a question runs.
  void Ask();

  // Whether TakeDecided has something new.
  bool answered() const { return question_ != nullptr && question_->answered; }

  // In the order held. Where brokers do not agree it is kSessionEnded: nothing is said about the
  // record.
  std::vector<Held> TakeDecided(base::MonotonicTime now);

  // Also what is not decided.
  std::vector<Held> TakeAll();

  // A question that has not begun does nothing.
  void GiveUp();

 private:
  // Shared by the halves of its job.
  struct Question {
    std::string topic;
    std::vector<std::int32_t> leaders;
    std::atomic<bool> given_up = false;
    Leadership answer = Leadership::kUnsaid;  // the job's until `answered`
    bool answered = false;                    // the loop's
  };

  void TakeAnswer(base::MonotonicTime now);
  bool IsKnownToLead(const Held& held, base::MonotonicTime now) const;
  void RejectAgainLater(Leadership answer, base::MonotonicTime now, Held* held);

  const KafkaOptions options_;
  base::BlockingRunner* const runner_;
  TopicMemory* const memory_;
  std::vector<Held> held_;
  std::shared_ptr<Question> question_;  // null = none runs
};

}  // namespace walpost::kafka
