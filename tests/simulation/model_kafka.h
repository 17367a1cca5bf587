// ModelKafka - a Sink over logs that a consumer reads: what is submitted is sent in batches, lands
// or not, and is reported late, by partition, or never.
// Why: the pipeline's policy is about what a real cluster does once a month.
// How: the seam's contract (delivery/sink.h) is kept; within it everything is random.
// Thread: one owner.   Lifetime: the judge must outlive it; it outlives the pipelines.
// Errors: throws Violation when the caller breaks the seam's rules.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "judge.h"
#include "plan.h"
#include "progress_log.h"
#include "random.h"

namespace walpost::simulation {

class ModelKafka final : public delivery::Sink {
 public:
  static constexpr std::uint32_t kPartitions = 3;  // of a topic

  ModelKafka(const Plan& plan, const ModelPostgres* server, Judge* judge);

  // What happens on the network and at the brokers meanwhile.
  void Advance(base::Now now);

  // From now on nothing goes wrong.
  void Heal();

  // What brokers reject they take from now on.
  void TakePoison() { poison_.clear(); }

  // The same for one event.
  void TakeOnePoison();

  ProgressLog& progress() { return progress_; }

  const ProgressLog& progress() const { return progress_; }

  // The topic is made anew: what was on its way to the old one never lands.
  void DeleteProgress();

  // Of progress records since one was acknowledged.
  int progress_rejections() const { return progress_rejections_; }

  // No broker answers.
  bool away() const { return now_ < outage_until_; }

  // Progress of a process that is gone came after it.
  bool late_progress() const { return late_progress_; }

  // For minutes.
  bool away_for_long() const { return now_ < long_outage_until_; }

  // walpost died: nobody waits for reports. What is under way may land all the same.
  void Abandon();

  std::size_t outstanding_bytes() const { return outstanding_bytes_; }

  // A partition takes nothing, and may not for minutes.
  bool stuck() const;

  // --- Sink ---
  void Open(Mode mode) override;
  void Close() override;

  bool closed() const override { return !open_; }

  // Submit answers about the topic, too.
  delivery::SubmitResult FindTopic(const envelope::Record&) override { return {}; }

  delivery::SubmitResult Submit(const envelope::Record& record,
                                delivery::Sequence sequence) override;
  void Poll(base::Now now, delivery::SinkListener* listener) override;

  int wake_fd() const override { return -1; }

  std::optional<base::MonotonicTime> NextDeadline() const override { return std::nullopt; }

 private:
  // What a broker receives.
  struct Content {
    Identity what;
    std::optional<base::Progress> progress;
  };

  struct Message {
    delivery::Sequence sequence = 0;
    Content content;
    envelope::Record record;
    bool landed = false;
  };

  // What is known of an event's topic. Rows of the model name two.
  struct Topic {
    base::MonotonicTime unknown_until;  // no broker knows it
    bool looked_up = false;             // of this session: it may be sent to
    bool pending = false;
    base::MonotonicTime answer_at;
    bool rejection_reported = true;                     // of the last answer
    std::optional<base::MonotonicTime> rejected_since;  // nothing else was answered since
    std::optional<base::MonotonicTime> reported_since;  // the same, as far as walpost asked
    base::MonotonicTime not_writable_until;             // it is there all the same
    std::optional<base::MonotonicTime>
        not_writable_since;            // a record was answered so, none taken since
    base::MonotonicTime blamed_until;  // one of these was reported for long enough
  };

  struct Partition {
    // Without a report, in order; the landed ones come first. What stands behind those that are
    // sent waits in walpost.
    std::deque<Message> messages;
    std::size_t sent = 0;
    bool failed = false;  // of this session
    delivery::PartitionGate gate;
    // Until then the broker knows the producer, and takes its records without a gap only.
    std::optional<base::MonotonicTime> known_until;
    base::MonotonicTime stuck_until;
  };

  struct Report {
    Message message;
    delivery::Failure failure;  // kNone = good
  };

  std::size_t PartitionOf(const Identity& what) const;
  bool IsPoison(std::uint64_t event);
  // By the client, or by the broker.
  bool IsRejected(const Identity& what, bool by_client);
  void LandOne(const Content& content, bool late = false);
  void Send(Partition* partition) const;
  void Land(Partition* partition, std::size_t count);
  void AdvancePartition(Partition* partition);
  void ChangeTopics();
  std::optional<delivery::SubmitResult> LookUp(const Identity& what);
  void AnswerLookUps(delivery::SinkListener* listener);
  void BlameTopics();
  bool MayBlame(const Identity& what, delivery::FailureKind kind);
  bool MayBeWritten(const Identity& what);
  bool MayBlameTopic(const Identity& what);
  void FailBatch(Partition* partition, std::size_t count, delivery::FailureKind kind);
  void ReportFirst(Partition* partition);
  void LandLate();
  void Acknowledge(const Message& message, delivery::SinkListener* listener);
  void EndClose(delivery::SinkListener* listener);

  const Plan plan_;
  Random random_;
  const ModelPostgres* const server_;
  Judge* const judge_;
  Faults faults_;
  std::vector<Partition> partitions_;
  std::map<std::string, Topic> topics_;
  std::map<std::uint64_t, base::MonotonicTime> unclear_since_;  // by event
  std::deque<Report> reports_;
  std::set<std::uint64_t> poison_;
  std::uint64_t poison_asked_below_ = 0;
  ProgressLog progress_;
  int progress_rejections_ = 0;
  base::MonotonicTime progress_rejected_until_;
  std::vector<std::deque<Content>> late_;  // by partition: may land, in order
  bool late_progress_ = false;
  std::size_t outstanding_ = 0;  // without a report that was served
  std::size_t outstanding_bytes_ = 0;
  Mode mode_ = Mode::kPipelined;
  bool open_ = false;
  bool closing_ = false;
  bool dead_ = false;  // the session failed as a whole
  bool silent_ = false;
  std::optional<delivery::Failure> session_failure_;
  base::MonotonicTime now_;
  base::MonotonicTime outage_until_;
  base::MonotonicTime long_outage_until_;
  base::MonotonicTime close_at_;
};

}  // namespace walpost::simulation
