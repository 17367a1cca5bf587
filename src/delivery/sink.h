// Sink - the seam to Kafka: where records go and where their delivery reports come from.
// Why: pipeline and simulator drive deliveries without knowing librdkafka. A sink works in
//   sessions, one producer from Open to Closed. The first failed report ends a session:
//   idempotence does not prevent gaps, later records of the partition would overtake. What was not
//   delivered is submitted again to the next one, from memory.
// Thread: every call on the loop thread; nothing blocks; reports come only from within Poll.
// Lifetime: a submitted record's bytes stay valid and unmoved until its report, or until OnClosed.
// Contract (tests/conformance/sink_contract.h, run on fake, mock cluster and real Kafka):
//   - each accepted record gets exactly one report, or none when the session closes first:
//     OnClosed means that no further report comes, and every record without a good report is not
//     delivered (it may be in the log all the same);
//   - records of one partition become visible in the order accepted; after a failed report nothing
//     later of that partition becomes visible before the session ends;
//   - kOneAtATime sends a partition its next record when the last one has its report, so that each
//     report is about its record alone.
// Source: librdkafka INTRODUCTION.md, "Idempotent Producer".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "envelope/record.h"

namespace walpost::delivery {

using Sequence =
    std::uint64_t;  // of a record, in stream order, from 0; never reused within a process

// From here on: records that come from elsewhere than the stream.
inline constexpr Sequence kFirstOwnSequence = Sequence{1} << 62U;

// Why a record was not delivered. What follows from each is decided by pipeline.
enum class FailureKind {
  kNone,
  kRecordTooLarge,    // the record, or the batch it shared
  kRecordInvalid,     // the broker rejects it, for example without a key
  kTopicUnknown,      // no such topic (after a metadata look-up)
  kPartitionUnknown,  // the topic has fewer
  kTopicInvalid,      // not a legal topic name
  kTopicNotAuthorized,
  kSessionEnded,    // purged, fenced, or lost with a producer that died: says nothing about the
                    // record
  kSchemaRejected,  // by the Schema Registry; no sink says this
  kOther,
};

// Another record of the topic may well be taken.
constexpr bool IsAboutARecord(FailureKind kind) {
  return kind == FailureKind::kRecordTooLarge || kind == FailureKind::kRecordInvalid ||
         kind == FailureKind::kPartitionUnknown || kind == FailureKind::kSchemaRejected;
}

struct Failure {
  FailureKind kind = FailureKind::kNone;
  std::string detail;      // what the client or broker said; no record bytes
  bool must_last = false;  // before it counts: LastingRejections
  // With must_last: the topic's limit that the record may have exceeded, as it was read last; a
  // larger one takes more. 0 = never read, or there is none.
  std::int64_t limit = 0;
  std::int64_t limit_wanted = 0;  // the smallest that takes the record; 0 = not known
  bool silent = false;            // not all brokers have answered
  // When a broker last said otherwise about the topic: no time from before counts.
  std::optional<base::MonotonicTime> contradicted_at = std::nullopt;

  // An answer that must last is, once it has lasted.
  bool IsAboutTheRecord() const { return IsAboutARecord(kind); }
};

struct SubmitResult {
  enum class Outcome {
    kAccepted,
    kNotNow,        // queue full: offer it again after Poll
    kTopicPending,  // its topic is being looked up, or must take others first: offer it again after
                    // OnTopicAnswered. Records of other topics may go first
    kRejected,      // can never be delivered as it is: `failure` says why; the session is not
                    // affected
  };

  static SubmitResult Rejected(FailureKind kind, std::string detail) {
    return {Outcome::kRejected, Failure{kind, std::move(detail)}};
  }

  Outcome outcome = Outcome::kAccepted;
  Failure failure;
};

// Where in its topic a record is. Negative = not known: when the first answer was lost and the
// record is already there, a broker does not say its offset.
struct PartitionOffset {
  std::int32_t partition = -1;
  std::int64_t offset = -1;
};

class SinkListener {
 public:
  virtual ~SinkListener() = default;
  // Each record of the stream below it has been received. What is looked up from now on is newer.
  virtual Sequence ReceivedBelow() const = 0;
  virtual void OnDelivered(Sequence sequence, PartitionOffset where) = 0;
  // The session is over from here on: the pipeline will Close it.
  virtual void OnFailed(Sequence sequence, const Failure& failure) = 0;
  // The producer died as a whole (fatal error); no single record is to blame. The pipeline will
  // Close it.
  virtual void OnSessionFailed(const Failure& failure) = 0;
  // The sink needs a producer with other settings; nothing failed. The pipeline will Close it, and
  // open another session of the same mode.
  virtual void OnProducerOutgrown() = 0;
  // Follows each kTopicPending unless the session closes first: offer the record again. `known` =
  // the topic may be sent to.
  virtual void OnTopicAnswered(std::string_view topic, bool known) = 0;
  virtual void OnClosed() = 0;
};

class Sink {
 public:
  enum class Mode { kPipelined, kOneAtATime };

  virtual ~Sink() = default;

  // Starts a session. CHECK-fails unless closed. Never fails: an unreachable Kafka just reports
  // nothing.
  virtual void Open(Mode mode) = 0;

  // Begins to end the session; OnClosed follows from a later Poll. CHECK-fails when closed; a
  // second call is ignored.
  virtual void Close() = 0;

  virtual bool closed() const = 0;

  // CHECK-fails unless open. After Close: kNotNow.
  virtual SubmitResult Submit(const envelope::Record& record, Sequence sequence) = 0;

  // As Submit answers about the record's topic alone; nothing is sent. kAccepted: the topic is
  // there.
  virtual SubmitResult FindTopic(const envelope::Record& record) = 0;

  // An operator has put something right: what was rejected before says nothing any more.
  virtual void ForgetRejections() {}

  // Serves what has arrived since the last call.
  virtual void Poll(base::Now now, SinkListener* listener) = 0;

  // Readable when Poll has something to do; -1 for a sink that must be polled.
  virtual int wake_fd() const = 0;

  // When Poll wants to be called even without a wake-up.
  virtual std::optional<base::MonotonicTime> NextDeadline() const = 0;
};

}  // namespace walpost::delivery
