// HeldTopics - topics whose events wait while those of other topics go on, and what is known of
// them.
// Why: a topic that is looked up, that does not exist yet, or of which a record got an answer that
//   says nothing about it, must not stop what has another topic; and no event of it may overtake
//   another.
// How: the first event that cannot go holds its topic, the later ones of that topic queue behind
//   it. What is known of a topic outlives producers, the queues are made anew with each. While a
//   topic's last answer decides nothing, the sink has one of its records at a time: each answer is
//   about the topic's first.
// Thread: one owner.
// Units/limits: the queues are bounded by what is in flight. Decisions that nobody waits for are
//   forgotten beyond kAnswersMax.
#pragma once

#include <chrono>
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

#include "base/time.h"
#include "delivery/lasting_rejections.h"
#include "delivery/sink.h"
#include "envelope/record.h"

namespace walpost::pipeline {

class HeldTopics {
 public:
  // What was decided about a topic counts for its next events so long; then it is asked about
  // again.
  static constexpr std::chrono::milliseconds kAnswerKept{5'000};
  // An answer that says nothing about the record counts against it after so long, when other
  // records were delivered meanwhile.
  static constexpr std::chrono::milliseconds kUnclearFor{300'000};
  // What has waited is tried again after as long as it has waited, within these.
  static constexpr std::chrono::milliseconds kTryAgainMin{200};
  static constexpr std::chrono::milliseconds kTryAgainMax{30'000};
  // What was said of a topic is not believed to hold any more.
  static constexpr std::chrono::milliseconds kForgottenAfter{600'000};
  // When more topics are held, each is asked about when its answer may count, and not before.
  static constexpr std::size_t kMany = 100;
  static constexpr std::size_t kAnswersMax = 1'000;

  // A broker learns of a new topic, or of a right, later than others. So that there is none is
  // believed when nothing else was said for `unknown_wait`.
  // `rejections` must outlive it.
  HeldTopics(std::chrono::milliseconds unknown_wait, delivery::LastingRejections* rejections)
      : unknown_wait_(unknown_wait), rejections_(rejections) {}

  // What is to be done about the event that is next in its topic.
  enum class Step { kTry, kWait, kDecide };

  // True for a pipeline without trouble: then nothing else needs to be asked.
  bool empty() const { return troubles_.empty() && held_.empty() && timers_.empty(); }

  bool IsHeld(std::string_view topic) const { return held_.find(topic) != held_.end(); }

  // How many events wait.
  std::size_t events() const { return events_; }

  // --- What is known of a topic ---
  // Such a failure is one of each record of the topic.
  static bool IsOfTopic(delivery::FailureKind kind);
  Step Next(std::string_view topic, base::MonotonicTime now) const;
  // After kDecide: why.
  const delivery::Failure& rejection(std::string_view topic) const;
  // The sink rejected the topic. Whether that decides already.
  bool OnRejected(std::string_view topic, const delivery::Failure& failure,
                  base::MonotonicTime now);

  struct Unclear {
    std::uint32_t attempts = 0;
    bool decided = false;
  };

  // The record was sent alone, and the answer says nothing about it, or must last. One that must
  // last counts for the topic, whichever of its records gets it. `delivered` = so far, of all: of
  // the time between two answers nothing counts in which no other topic's record was.
  Unclear OnUnclear(const envelope::Record& record, delivery::Sequence sequence,
                    const delivery::Failure& failure, std::uint64_t delivered,
                    base::MonotonicTime now);
  // A record of it got such an answer, and none was delivered since.
  bool IsUnclear(std::string_view topic) const;
  // The sink has taken a record of it.
  void OnAccepted(std::string_view topic);
  void OnDelivered(std::string_view topic, delivery::Sequence sequence);
  // Decided about, or it waits no more.
  void OnDecided(std::string_view topic, delivery::Sequence sequence);

  // --- Events that wait ---
  void Hold(std::string_view topic, delivery::Sequence sequence);
  // After kWait: NextDeadline is no later than the topic's time.
  void WakeFor(std::string_view topic, base::MonotonicTime now);
  // The sink looks the topic up, and OnAnswered comes.
  void OnPending(std::string_view topic);
  // The sink has an answer. A topic that is `known` has no trouble any more.
  void OnAnswered(std::string_view topic, bool known);
  // A topic to be tried now. It is due until Wait or Postpone.
  std::optional<std::string> Due(base::MonotonicTime now);
  // Its first event.
  std::optional<delivery::Sequence> First(const std::string& topic) const;
  void PopFirst(const std::string& topic);
  std::vector<delivery::Sequence> FirstOf(std::string_view topic, std::size_t most) const;

  // Whether a topic is being looked up, or is to be tried now.
  bool busy() const { return !pending_.empty() || !due_.empty(); }

  // Until its time, or an answer.
  void Wait(const std::string& topic);
  // Until the next round.
  void Postpone(const std::string& topic);
  // Whether anything was postponed, which is due again from here on.
  bool EndRound();
  std::optional<base::MonotonicTime> NextDeadline() const;

  // With a producer its queues end.
  void ForgetQueues();
  void ForgetAll();

 private:
  struct Trouble {
    delivery::Failure failure;  // the last answer
    bool of_record = false;     // a record got it, which the topic's look-up does not show
    bool decided = false;
    base::MonotonicTime since;
    base::MonotonicTime answered_at;
    base::MonotonicTime try_at;
    delivery::Sequence sequence = 0;  // of the record
    std::uint64_t delivered = 0;      // at the last answer, and of the topic since
    std::uint32_t attempts = 0;
    std::chrono::milliseconds same_for{0};      // nothing but its like was answered
    std::chrono::milliseconds all_said_for{0};  // and all brokers had answered, before and after
    std::chrono::milliseconds unclear_for{0};   // nothing else was, and other topics went on

    // No more of the time between two answers counts.
    std::chrono::milliseconds CountedMax() const;
    void Count(const delivery::Failure& answer, std::uint64_t delivered_now,
               base::MonotonicTime now);
  };

  struct Queue {
    std::deque<delivery::Sequence> events;
    bool due = false;
  };

  template <typename T>
  using ByTopic = std::map<std::string, T, std::less<>>;

  void MakeDue(std::string_view topic);
  std::chrono::milliseconds TimeLeft(const Trouble& trouble) const;
  bool IsOld(const Trouble& trouble, base::MonotonicTime now) const;
  void NoteDecided(const std::string& topic, Trouble* trouble);
  void ForgetRejection(std::string_view topic);
  void BoundAnswers(const std::string& newest);

  const std::chrono::milliseconds unknown_wait_;
  ByTopic<Trouble> troubles_;
  ByTopic<Queue> held_;
  delivery::LastingRejections* const rejections_;
  std::set<std::string, std::less<>> tried_;  // unclear ones of which the sink has a record
  std::set<std::string, std::less<>> pending_;
  std::deque<std::string> due_;
  std::deque<std::string> postponed_;
  std::set<std::pair<base::MonotonicTime, std::string>> timers_;
  std::deque<std::string> answers_;  // the oldest first
  std::size_t events_ = 0;
};

}  // namespace walpost::pipeline
