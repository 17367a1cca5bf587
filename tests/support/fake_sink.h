// FakeSink - a Sink whose reports the test decides: what, for which record, when.
// Why: the pipeline's policy is about failures that a real Kafka produces once a month. How:
//   commands (Deliver, Fail, ...) are queued and become reports in the next Poll. Like the real one
//   it gives the records still outstanding at Close a failed report each, and calls OnClosed after
//   the last.
// Thread: one owner.
// Errors: CHECK-fails when the caller breaks the seam's rules (Submit while closed, bytes of an
//   unreported record moved or freed), and when the test asks for what no Kafka does (records of a
//   partition in another order, or behind a failed one).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delivery/sink.h"

namespace walpost::testing {

class FakeSink final : public delivery::Sink {
 public:
  static constexpr std::int32_t kPartitions = 4;

  struct Submission {
    delivery::Sequence sequence = 0;
    std::string topic;
    std::optional<std::string> key;
    std::optional<std::string> value;
    std::int32_t partition = 0;
    std::vector<std::pair<std::string, std::string>> headers;
  };

  struct Session {
    Mode mode = Mode::kPipelined;
    std::vector<Submission> accepted;  // in order
    bool closed = false;
  };

  // --- Commands: reports of the next Poll ---
  void Deliver(delivery::Sequence sequence);
  // Everything outstanding that no other command is about.
  void DeliverAll();
  void Fail(delivery::Sequence sequence, delivery::FailureKind kind, std::string detail = "no");
  void FailSession(std::string detail);
  void OutgrowProducer();

  // --- Commands: answers to Submit, from now on ---
  void SetNotNow(bool not_now) { not_now_ = not_now; }

  // At most this many outstanding; the queue of the real one.
  void SetCapacity(std::size_t records) { capacity_ = records; }

  // `topic`: only there; empty = anywhere.
  void Reject(delivery::Sequence sequence, delivery::Failure failure, std::string topic = "") {
    rejections_[sequence] = {std::move(topic), std::move(failure)};
  }

  void StopRejecting() { rejections_.clear(); }

  // Every record of the topic.
  void RejectTopic(const std::string& topic, delivery::Failure failure) {
    rejected_topics_[topic] = std::move(failure);
  }

  void TakeTopic(const std::string& topic) { rejected_topics_.erase(topic); }

  // How often it was.
  int rejections(const std::string& topic) { return rejections_of_topic_[topic]; }

  // The topic is being looked up; it is answered in the Poll after it no longer is.
  void SetPending(const std::string& topic, bool pending);

  // A record that does not come with the stream has the topic looked up, each time: until the next
  // Poll.
  void LookUpForOwn(const std::string& topic) { looked_up_for_own_ = topic; }

  // --- Commands: how a session ends ---
  // OnClosed does not come while held.
  void HoldClose(bool hold) { hold_close_ = hold; }

  // Records outstanding at the end get no report at all, which the seam allows too.
  void CloseSilently(bool silent) { close_silently_ = silent; }

  // --- What was seen ---
  const std::vector<Session>& sessions() const { return sessions_; }

  // CHECK-fails before the first Open.
  const Session& session() const;
  // Of the current session.
  std::vector<delivery::Sequence> accepted() const;
  std::vector<delivery::Sequence> outstanding() const;

  // Delivered records of a partition, over all sessions: what a consumer would read.
  const std::vector<Submission>& Log(const std::string& topic, std::int32_t partition) {
    return logs_[{topic, partition}];
  }

  // Where the fake puts a record without a partition: by the key's last byte, or 0.
  static std::int32_t PartitionOf(const envelope::Record& record);

  // --- Sink ---
  void Open(Mode mode) override;
  void Close() override;

  bool closed() const override { return !open_; }

  delivery::SubmitResult FindTopic(const envelope::Record& record) override;
  delivery::SubmitResult Submit(const envelope::Record& record,
                                delivery::Sequence sequence) override;
  void Poll(base::Now now, delivery::SinkListener* listener) override;

  int wake_fd() const override { return -1; }

  std::optional<base::MonotonicTime> NextDeadline() const override { return deadline_; }

  void SetNextDeadline(std::optional<base::MonotonicTime> deadline) { deadline_ = deadline; }

 private:
  struct Outstanding {
    Submission submission;
    envelope::Record record;  // the caller's bytes
    bool commanded = false;
  };

  struct Command {
    enum class Kind { kDeliver, kFail, kFailSession, kOutgrow };

    Kind kind = Kind::kDeliver;
    delivery::Sequence sequence = 0;
    delivery::Failure failure;
  };

  Outstanding* Find(delivery::Sequence sequence);
  void Serve(Command command, delivery::SinkListener* listener);
  // Nothing of its partition is outstanding before it.
  void CheckFirst(delivery::Sequence sequence);
  // Takes it off the list, after a look at its bytes.
  Submission Report(delivery::Sequence sequence);

  std::vector<Session> sessions_;
  std::map<std::pair<std::string, std::int32_t>, std::vector<Submission>> logs_;
  std::deque<Outstanding> outstanding_;
  std::deque<Command> commands_;
  std::set<std::pair<std::string, std::int32_t>> failed_partitions_;  // of this session
  std::map<delivery::Sequence, std::pair<std::string, delivery::Failure>> rejections_;
  std::map<std::string, delivery::Failure, std::less<>> rejected_topics_;
  std::map<std::string, int> rejections_of_topic_;
  std::set<std::string, std::less<>> pending_topics_;
  std::vector<std::string> answered_topics_;
  std::string looked_up_for_own_;
  std::optional<base::MonotonicTime> deadline_;
  std::size_t capacity_ = static_cast<std::size_t>(-1);
  bool open_ = false;
  bool closing_ = false;
  bool failed_ = false;
  bool not_now_ = false;
  bool hold_close_ = false;
  bool close_silently_ = false;
};

}  // namespace walpost::testing
