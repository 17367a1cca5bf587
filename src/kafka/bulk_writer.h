// BulkWriter - writes many records in their order, without waiting for each: what verbs send from a
// table.
// Why: as safe as the sink, but with an end: after the first record that fails nothing more is
//   written, and nothing has overtaken it, so that who is asked to go on knows from where. A broker
//   fails a whole batch for one record, so records of a failed batch are written again one at a
//   time: only then is its answer about a record.
// Thread: one owner; blocking.   Lifetime: a record is copied before Write returns.
// Units/limits: at most in_flight_bytes_max of the options are unacknowledged. `patience`: how long
//   without any acknowledgement. A rejection must last (LastingRejections): for the options'
//   unknown_topic_wait the limits are read again, or the record is written again. Then the record
//   is rejected, or the topic closed. All waits together are bounded: beyond ten times that, 1 s
//   each.
// Errors: kNotFound (no such topic), kPermissionDenied, kInvalidArgument (the topic does not take a
//   record: too large, not valid, no such partition), kUnavailable (no acknowledgement in time:
//   whether the record arrived is not known); and what OnRejected returns.
// Source: docs/design.md, "Facts"; one request in flight, since a broker takes any first sequence
//   number of a new producer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "delivery/lasting_rejections.h"
#include "delivery/sink.h"
#include "envelope/record.h"
#include "kafka/client.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"
#include "kafka/topic_look_up.h"

namespace walpost::kafka {

// A topic that takes no record at all: it does not exist, or a right is missing.
struct ClosedTopic {
  std::string name;
  std::string why;
  std::uint64_t records = 0;  // that were left out for it
};

class BulkWriter {
 public:
  // Its topic does not take the event with this id: kInvalidArgument, says why. OK = leave it out
  // and go on; an error ends the writing.
  using OnRejected = std::function<absl::Status(const std::string& id, const absl::Status& why)>;

  BulkWriter(KafkaOptions options, std::chrono::milliseconds patience, OnRejected on_rejected)
      : options_(std::move(options)),
        patience_(patience),
        on_rejected_(std::move(on_rejected)),
        by_look_ups_(options_.unknown_topic_wait),
        by_brokers_(options_.unknown_topic_wait) {}

  // Topics that are known not to be seen: Write rejects their records without a look-up.
  void KnowUnseen(const UnseenTopics& topics);

  // False: its topic does not exist, or a right is missing, so that Write rejects the record.
  absl::StatusOr<bool> TakesSomething(const envelope::Record& record);

  // The time of the record is that of the produce.
  absl::Status Write(const envelope::Record& record);

  // Until everything written is acknowledged.
  absl::Status Flush();

  // Since the last call.
  std::uint64_t TakeAcknowledged() { return std::exchange(acknowledged_, 0); }

  std::vector<ClosedTopic> TakeClosedTopics();

  // Of all topics, since the beginning.
  std::uint64_t closed_out() const { return closed_out_; }

 private:
  struct Target {
    std::string takes_nothing;   // why; empty = it takes records
    std::uint64_t left_out = 0;  // for that, and not taken yet
    std::int32_t partitions = 0;
    TopicLimits limits;      // the last that were read
    bool described = false;  // in the last look: only then they reject a record
    std::chrono::steady_clock::time_point looked_at;
    std::chrono::steady_clock::time_point describe_from;
    std::optional<std::chrono::steady_clock::time_point> leaders_agreed_at;
  };

  struct Answer {
    absl::Status status;
    delivery::FailureKind kind = delivery::FailureKind::kNone;
  };

  absl::StatusOr<Target*> FindTarget(const envelope::Record& record);
  absl::StatusOr<Target*> TargetOf(const std::string& topic);
  absl::Status LookUp(const std::string& topic, Target* target,
                      delivery::Sink::Mode mode = delivery::Sink::Mode::kPipelined);
  absl::Status MakeClient(delivery::Sink::Mode mode = delivery::Sink::Mode::kPipelined);
  // OK = the topic takes it, as far as is known before.
  Answer Check(const envelope::Record& record, const Target& target) const;
  absl::StatusOr<Answer> CheckForLong(const envelope::Record& record, Target* target);
  // OK = who is asked goes on without the event.
  absl::Status LeaveOut(const std::string& topic, const std::string& id, const absl::Status& why);
  // Until no more are unacknowledged.
  absl::Status AwaitAtMost(std::size_t bytes);
  // Whether there was any.
  bool TakeReports();
  Event Poll();
  // What came back with the batch that failed.
  absl::Status WriteAlone();
  // Of it one message, until Kafka says what becomes of it; and as often as a change may come late.
  absl::Status WriteOne(const rd_kafka_message_t& message);
  bool MayPass(std::chrono::milliseconds left) const;
  absl::Status CheckLeaders(const std::string& topic, Target* target) const;
  Answer WriteOnce(const rd_kafka_message_t& message, const envelope::Record& record);
  Answer AwaitAnswer();
  absl::Status NothingAcknowledged() const;

  const KafkaOptions options_;
  const std::chrono::milliseconds patience_;
  const OnRejected on_rejected_;
  Producer client_;  // null until needed
  ProducerLimits producer_limits_ = {std::nullopt, kRequestBytesMax};
  std::map<std::string, Target> targets_;
  bool compressed_ = false;
  delivery::LastingRejections by_look_ups_;
  delivery::LastingRejections by_brokers_;
  std::chrono::steady_clock::duration waited_{0};      // for what might pass
  std::chrono::steady_clock::duration unseen_for_{0};  // waited for topics that are not there
  std::uint64_t closed_out_ = 0;
  std::uint64_t sequence_ = 0;                      // of the next record
  std::map<std::uint64_t, std::size_t> in_flight_;  // bytes, by sequence
  std::size_t in_flight_bytes_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::vector<Event> reports_;                       // of those in returned_, whom they own
  std::vector<const rd_kafka_message_t*> returned_;  // the failed batch and what was behind it
  absl::Status failure_;                             // of the first record that failed
};

}  // namespace walpost::kafka
