// ProducerSession - one librdkafka producer from Open to closed, with its topics.
// Why: a producer that failed once is never used again; everything that belongs to it (topics,
//   which partitions have had their first record acknowledged, what is outstanding) goes with it.
// How: records wait here, and Poll gives each partition a batch when all of the last one is
//   answered. librdkafka sends no second request for a partition anyway, and its thread spins for
//   as long as more waits there: for the whole of an outage.
// Thread: loop thread, except that a metadata look-up holds the producer alive on a helper
//   thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/blocking_runner.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "kafka/client.h"
#include "kafka/held_rejections.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"
#include "kafka/topic_look_up.h"

namespace walpost::kafka {

class ProducerSession {
 public:
  // A topic is not asked about again sooner when nobody answered, when brokers disagree, or while a
  // rejection must last.
  static constexpr std::chrono::milliseconds kAskAgainAfter{500};
  // After a look-up that asked each broker, which connects anew, the next one begins no sooner.
  static constexpr std::chrono::milliseconds kAskEachAfter{150};
  // Brokers that did not answer a look-up are not waited for again so long, or for a moment only.
  static constexpr std::chrono::milliseconds kSilentKept{10'000};
  // The next record gets what was found. After this time the topic is asked about again.
  static constexpr std::chrono::milliseconds kAnswerKept{5'000};
  // A record is rejected by a topic's limits, or partitions, that were read no longer ago than
  // this.
  static constexpr std::chrono::milliseconds kLimitsKept{1'000};
  // Topics lose no partitions. So long look-ups must say so before it counts: a broker that is cut
  // off from the controller goes on answering with what it knew before.
  static constexpr std::chrono::milliseconds kFewerWait{60'000};
  // A record is dated far back by limits that were read no longer ago than this.
  static constexpr std::chrono::milliseconds kLimitsDate{30'000};
  // Where a partition reports nothing for so long, leaders are looked at; so often at most a
  // producer is replaced for what is found.
  static constexpr std::chrono::milliseconds kLeadersAfter{30'000};
  static constexpr std::chrono::milliseconds kLeadersSoon{3'000};
  static constexpr std::chrono::milliseconds kCheckWaitsEvery{1'000};
  static constexpr std::chrono::milliseconds kReplaceEvery{10'000};
  // Topics asked about in one job, behind which others wait.
  static constexpr std::size_t kQuestions = 16;
  // When so many were unknown or not permitted, many are asked about together first.
  static constexpr std::size_t kRejectedMany = 100;
  static constexpr std::size_t kQuestionsTogether = 1'000;
  // After a topic's configuration was asked for in vain, no other is asked for so long.
  static constexpr std::chrono::milliseconds kDescribeAgainAfter{60'000};
  // A producer that is outgrown waits so long for a report: one of its partitions may be stuck.
  static constexpr std::chrono::milliseconds kOutgrownWait{1'000};
  // Without any report for this long while closing, the broker is taken to be gone.
  static constexpr std::chrono::milliseconds kPurgeInFlightAfter{10'000};

  using Notify = std::function<void(const KafkaNotice&)>;

  // `memory`, `facts`, `runner` and `notify` must outlive it and any look-up it started.
  static absl::StatusOr<std::unique_ptr<ProducerSession>> Create(
      const KafkaOptions& options, delivery::Sink::Mode mode, int wake_fd,
      base::BlockingRunner* runner, TopicMemory* memory, KafkaFacts* facts, const Notify* notify);
  ~ProducerSession();
  ProducerSession(const ProducerSession&) = delete;
  ProducerSession& operator=(const ProducerSession&) = delete;

  delivery::SubmitResult Submit(const envelope::Record& record, delivery::Sequence sequence);
  delivery::SubmitResult FindTopic(std::string_view name);
  void Poll(base::Now now, delivery::SinkListener* listener);
  void Close(base::Now now);

  // Its producer was made with options that no longer do. It takes and sends no more records; the
  // listener learns of it when what was sent has its reports, or when no more come.
  void Outgrow(const std::string& why);

  bool closing() const { return closing_; }

  // Closing, and the last report is in.
  bool drained() const { return closing_ && outstanding_ == 0; }

  std::optional<base::MonotonicTime> NextDeadline() const;

 private:
  struct Waiting {
    envelope::Record record;
    delivery::Sequence sequence = 0;
  };

  struct Partition {
    delivery::PartitionGate gate;
    std::optional<std::deque<Waiting>> waiting;  // none = nothing waits
    std::size_t outstanding = 0;                 // with librdkafka
    base::MonotonicTime unanswered_since;        // the oldest of these, or the last report
  };

  struct TopicState {
    enum class Phase { kNew, kLookingUp, kReady, kRejected };

    std::string name;
    Topic handle;
    bool kept = false;  // the producer refers to it
    Phase phase = Phase::kNew;
    std::size_t partition_count = 0;
    bool partition_wanted = false;      // beyond these, by a record, since the last look-up began
    bool asked_each_broker = false;     // for more partitions, by the last look-up
    bool each_answered = false;         // of these
    std::vector<std::int32_t> leaders;  // as the producer knows them
    // At least so many: one that is gone may still have records outstanding.
    std::vector<Partition> partitions;
    TopicLimits limits;
    bool dated_now = false;      // its records get the present, because it rejected their own time
    bool awaits_report = false;  // a record waits until its partition has nothing outstanding
    base::MonotonicTime limits_read_at;
    // What was received before the last look-up began.
    delivery::Sequence asked_below = 0;
    std::uint32_t round_robin = 0;
    delivery::Failure rejection;
    base::MonotonicTime answered_at;
    base::MonotonicTime ask_from;  // not sooner
  };

  using TopicPartition = std::pair<TopicState*, std::int32_t>;

  ProducerSession(const KafkaOptions& options, delivery::Sink::Mode mode,
                  base::BlockingRunner* runner, TopicMemory* memory, KafkaFacts* facts,
                  const Notify* notify);

  TopicState* StateOf(std::string_view name);
  void WantLookUp(TopicState* topic);
  delivery::SubmitResult AwaitTopic(TopicState* topic);
  delivery::SubmitResult LookUpFirst(TopicState* topic);
  delivery::SubmitResult ReportRejection(TopicState* topic);
  static delivery::SubmitResult AwaitReport(TopicState* topic);
  void StartLookUps();
  void FinishLookUps(const TopicQuestions& questions);
  // Whether it is known now what the topic is.
  bool TakeAnswer(const TopicQuestion& found, TopicState* topic);
  void OnContradicted(const TopicQuestion& found);
  bool TakeRejection(const TopicQuestion& found, TopicState* topic);
  void TakeLimits(const TopicQuestion& found, TopicState* topic);
  void RefreshCounts();
  void CheckWaits();
  base::MonotonicTime::duration LongestWait(const TopicState& topic) const;
  void CheckLeaders(const std::map<std::string, std::vector<std::int32_t>>& leaders);
  void OnStaleBroker(const std::string& what);
  void Replace(const std::string& why);
  bool TakePartitionCount(TopicState* topic, std::int32_t count);
  void OnMadeAnew(TopicState* topic);
  void OnOffsetWentBack(TopicState* topic, const rd_kafka_message_t& message);
  static void CloseGates(TopicState* topic);
  std::int32_t ChoosePartition(const envelope::Record& record, TopicState* topic) const;
  rd_kafka_resp_err_t Produce(const envelope::Record& record, delivery::Sequence sequence,
                              TopicPartition target);
  delivery::SubmitResult WhyNotProduced(rd_kafka_resp_err_t error, const envelope::Record& record,
                                        TopicState* topic);
  static Partition& At(TopicPartition target);
  bool MayBeTooLarge(const envelope::Record& record) const;
  void SendWaiting(delivery::SinkListener* listener);
  rd_kafka_resp_err_t SendBatch(TopicPartition target);
  void FailWaiting(delivery::SinkListener* listener);
  void ReportOutgrown(delivery::SinkListener* listener);
  std::optional<delivery::SubmitResult> CheckLimits(const envelope::Record& record,
                                                    delivery::Sequence sequence, TopicState* topic);
  bool DateNeedsLimits(const envelope::Record& record, const TopicState& topic) const;
  delivery::SubmitResult OnMissingPartition(std::int32_t partition, delivery::Sequence sequence,
                                            TopicState* topic);
  bool HasLasted(const delivery::Rejection& rejection, delivery::Sequence sequence,
                 TopicState* topic);
  delivery::SubmitResult TooLargeForProducer(const envelope::Record& record,
                                             const TopicState& topic);
  std::int64_t TimestampFor(const envelope::Record& record, const TopicState& topic) const;
  std::string WhyRejected(const rd_kafka_message_t& message) const;
  void ServeReports(rd_kafka_event_t* event, delivery::SinkListener* listener);
  void HoldRejection(delivery::Sequence sequence, delivery::Failure failure,
                     const rd_kafka_message_t& message);
  void ReportHeld(delivery::SinkListener* listener);
  void ReportFailure(delivery::Sequence sequence, delivery::Failure failure,
                     delivery::SinkListener* listener);
  void UpdateGate(const rd_kafka_message_t& message);
  void NoteRejectedTime(const TopicState& topic);
  void ServeError(rd_kafka_event_t* event, delivery::SinkListener* listener);
  void ServeLog(rd_kafka_event_t* event);
  void Purge();

  const KafkaOptions options_;
  const delivery::Sink::Mode mode_;
  base::BlockingRunner* const runner_;
  TopicMemory* const memory_;
  KafkaFacts* const facts_;
  const Notify* const notify_;
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // shared with look-ups, so that a late one is dropped

  std::map<std::string, std::unique_ptr<TopicState>, std::less<>>
      topics_;  // before producer_: destroyed after it is given up
  Producer producer_;
  Queue queue_;
  TopicState* last_topic_ = nullptr;
  std::deque<std::string> to_look_up_;       // now
  std::deque<std::string> to_look_up_soon_;  // from their ask_from on
  bool looking_up_ = false;
  std::size_t rejected_topics_ = 0;      // found by this producer
  std::vector<std::string> answered_;    // not yet reported to the listener
  std::vector<TopicPartition> waiting_;  // where records wait
  bool may_send_ = false;                // some came for a partition that awaits no answer
  std::size_t outstanding_ = 0;          // what waits too
  std::size_t sent_ = 0;                 // with librdkafka
  bool closing_ = false;
  bool failed_ = false;  // it takes and sends nothing more
  bool failure_reported_ = false;
  bool outgrown_ = false;
  base::MonotonicTime outgrown_at_;
  std::size_t records_max_ = 0;         // queue.buffering.max.messages in force
  std::int64_t batch_bytes_max_ = 0;    // batch.size in force
  std::size_t batch_records_max_ = 0;   // batch.num.messages in force
  std::int64_t message_bytes_max_ = 0;  // message.max.bytes in force
  bool message_bytes_given_ = false;    // by the user
  bool compressed_ = false;
  base::Now now_;
  delivery::Sequence received_below_ = 0;
  base::MonotonicTime last_report_;
  base::MonotonicTime next_refresh_;
  base::MonotonicTime next_wait_check_;
  bool refreshing_ = false;
  bool checking_leaders_ = false;
  HeldRejections held_;  // count as outstanding
};

}  // namespace walpost::kafka
