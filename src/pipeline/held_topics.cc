#include "pipeline/held_topics.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

namespace walpost::pipeline {

using delivery::Failure;
using delivery::FailureKind;
using delivery::Sequence;
using std::chrono::milliseconds;

namespace {

base::MonotonicTime TryAgainAt(base::MonotonicTime since, base::MonotonicTime now) {
  return now + std::clamp(std::chrono::duration_cast<milliseconds>(now - since),
                          HeldTopics::kTryAgainMin, HeldTopics::kTryAgainMax);
}

}  // namespace

bool HeldTopics::IsOfTopic(FailureKind kind) {
  return kind == FailureKind::kTopicUnknown || kind == FailureKind::kTopicInvalid ||
         kind == FailureKind::kTopicNotAuthorized;
}

HeldTopics::Step HeldTopics::Next(std::string_view topic, base::MonotonicTime now) const {
  const auto found = troubles_.find(topic);
  if (found == troubles_.end()) {
    return Step::kTry;
  }
  const Trouble& trouble = found->second;
  if (trouble.decided && IsOfTopic(trouble.failure.kind) &&
      now < trouble.answered_at + kAnswerKept) {
    return Step::kDecide;
  }
  if (tried_.find(topic) != tried_.end()) {
    return Step::kWait;
  }
  return now >= trouble.try_at ? Step::kTry : Step::kWait;
}

const Failure& HeldTopics::rejection(std::string_view topic) const {
  const auto found = troubles_.find(topic);
  CHECK(found != troubles_.end() && found->second.decided);
  return found->second.failure;
}

bool HeldTopics::OnRejected(std::string_view topic, const Failure& failure,
                            base::MonotonicTime now) {
  const auto [found, added] = troubles_.try_emplace(std::string(topic));
  Trouble& trouble = found->second;
  if (added || trouble.of_record || IsOld(trouble, now)) {
    trouble = Trouble();
    trouble.since = now;
  }
  trouble.Count(failure, /*delivered_now=*/0, now);
  const milliseconds left = TimeLeft(trouble);
  const bool decided = failure.kind == FailureKind::kTopicInvalid || left.count() == 0;
  if (decided) {
    NoteDecided(found->first, &trouble);
    return true;
  }
  trouble.decided = false;
  const base::MonotonicTime decided_at = now + std::min(left, unknown_wait_);
  trouble.try_at =
      held_.size() > kMany ? decided_at : std::min(TryAgainAt(trouble.since, now), decided_at);
  timers_.emplace(trouble.try_at, found->first);
  return false;
}

// Until the same answer decides.
milliseconds HeldTopics::TimeLeft(const Trouble& trouble) const {
  const milliseconds of_some =
      unknown_wait_ * delivery::LastingRejections::kSilentTimes - trouble.same_for;
  const milliseconds of_all = unknown_wait_ - trouble.all_said_for;
  return std::max(trouble.failure.silent ? of_some : std::min(of_some, of_all), milliseconds(0));
}

// A broker that is away gives no answer. So it is twice the planned pause.
milliseconds HeldTopics::Trouble::CountedMax() const {
  return std::max(std::chrono::duration_cast<milliseconds>(2 * (try_at - answered_at)),
                  kTryAgainMin);
}

void HeldTopics::Trouble::Count(const Failure& answer, std::uint64_t delivered_now,
                                base::MonotonicTime now) {
  const milliseconds passed =
      attempts == 0
          ? milliseconds(0)
          : std::min(std::chrono::duration_cast<milliseconds>(now - answered_at), CountedMax());
  unclear_for += delivered_now > delivered ? passed : milliseconds(0);
  const bool contradicted = answer.contradicted_at && *answer.contradicted_at >= answered_at;
  if (answer.kind != failure.kind || contradicted) {
    same_for = all_said_for = milliseconds(0);
  } else {
    same_for += passed;
    all_said_for += answer.silent || failure.silent ? milliseconds(0) : passed;
  }
  delivered = delivered_now;
  failure = answer;
  answered_at = now;
  ++attempts;
}

// What was said long ago is not the same as having been said all the time.
bool HeldTopics::IsOld(const Trouble& trouble, base::MonotonicTime now) const {
  return trouble.decided ? now >= trouble.answered_at + std::max(unknown_wait_, 2 * kAnswerKept)
                         : now >= std::max(trouble.answered_at, trouble.try_at) + kForgottenAfter;
}

HeldTopics::Unclear HeldTopics::OnUnclear(const envelope::Record& record, Sequence sequence,
                                          const Failure& failure, std::uint64_t delivered,
                                          base::MonotonicTime now) {
  const auto [found, added] = troubles_.try_emplace(std::string(record.topic));
  Trouble& trouble = found->second;
  tried_.erase(found->first);
  const bool same = failure.must_last && failure.kind == trouble.failure.kind;
  if (added || !trouble.of_record || trouble.decided || IsOld(trouble, now) ||
      (trouble.sequence != sequence && !same)) {
    trouble = Trouble();
    trouble.since = now;
    trouble.of_record = true;
  }
  if (trouble.sequence != sequence || trouble.attempts == 0) {
    trouble.sequence = sequence;
    trouble.unclear_for = milliseconds(0);
  }
  const milliseconds counted_max = trouble.CountedMax();
  trouble.Count(failure, delivered, now);
  trouble.try_at = TryAgainAt(trouble.since, now);
  bool decided = trouble.unclear_for >= kUnclearFor;
  if (failure.must_last) {
    const milliseconds left = rejections_->Count(record, failure, counted_max, now);
    trouble.try_at = std::min(trouble.try_at, now + left);
    decided = left.count() == 0;
  } else {
    rejections_->OnOther(record.topic);
  }
  if (decided && failure.must_last && IsOfTopic(failure.kind)) {
    NoteDecided(found->first, &trouble);
  }
  return {trouble.attempts, decided};
}

bool HeldTopics::IsUnclear(std::string_view topic) const {
  const auto found = troubles_.find(topic);
  return found != troubles_.end() && found->second.of_record;
}

void HeldTopics::OnAccepted(std::string_view topic) {
  if (IsUnclear(topic)) {
    tried_.emplace(topic);
  } else {
    ForgetRejection(topic);
  }
}

void HeldTopics::OnDelivered(std::string_view topic, Sequence sequence) {
  const auto found = troubles_.find(topic);
  if (found == troubles_.end() || !found->second.of_record) {
    return;
  }
  tried_.erase(found->first);
  ++found->second.delivered;  // it shows nothing about other topics
  if (found->second.failure.must_last || found->second.sequence == sequence) {
    troubles_.erase(found);
  }
  MakeDue(topic);
}

// What was decided for the topic counts for the next ones.
void HeldTopics::OnDecided(std::string_view topic, Sequence sequence) {
  const auto found = troubles_.find(topic);
  if (found == troubles_.end() || !found->second.of_record || found->second.sequence != sequence) {
    return;
  }
  tried_.erase(found->first);
  if (!found->second.decided) {
    troubles_.erase(found);
  }
  MakeDue(topic);
}

// The topic is there: what a look-up said before does not hold any more.
void HeldTopics::ForgetRejection(std::string_view topic) {
  const auto found = troubles_.find(topic);
  if (found != troubles_.end() && !found->second.of_record) {
    troubles_.erase(found);
  }
}

void HeldTopics::NoteDecided(const std::string& topic, Trouble* trouble) {
  if (!std::exchange(trouble->decided, true)) {
    BoundAnswers(topic);
  }
}

void HeldTopics::Hold(std::string_view topic, Sequence sequence) {
  held_[std::string(topic)].events.push_back(sequence);
  ++events_;
}

void HeldTopics::WakeFor(std::string_view topic, base::MonotonicTime now) {
  const auto trouble = troubles_.find(topic);
  if (trouble != troubles_.end() && trouble->second.try_at > now) {
    timers_.emplace(trouble->second.try_at, trouble->first);
  }
}

void HeldTopics::OnPending(std::string_view topic) { pending_.emplace(topic); }

void HeldTopics::OnAnswered(std::string_view topic, bool known) {
  if (const auto found = pending_.find(topic); found != pending_.end()) {
    pending_.erase(found);
  }
  if (known) {
    ForgetRejection(topic);
  }
  MakeDue(topic);
}

void HeldTopics::MakeDue(std::string_view topic) {
  const auto found = held_.find(topic);
  if (found != held_.end() && !std::exchange(found->second.due, true)) {
    due_.push_back(found->first);
  }
}

std::optional<std::string> HeldTopics::Due(base::MonotonicTime now) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    MakeDue(timers_.begin()->second);
    timers_.erase(timers_.begin());
  }
  return due_.empty() ? std::nullopt : std::optional(due_.front());
}

std::optional<Sequence> HeldTopics::First(const std::string& topic) const {
  const std::deque<Sequence>& events = held_.at(topic).events;
  return events.empty() ? std::nullopt : std::optional(events.front());
}

void HeldTopics::PopFirst(const std::string& topic) {
  held_.at(topic).events.pop_front();
  --events_;
}

std::vector<Sequence> HeldTopics::FirstOf(std::string_view topic, std::size_t most) const {
  const auto found = held_.find(topic);
  if (found == held_.end()) {
    return {};
  }
  const std::deque<Sequence>& events = found->second.events;
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, events.size()));
  return {events.begin(), events.begin() + count};
}

void HeldTopics::Wait(const std::string& topic) {
  CHECK(!due_.empty() && due_.front() == topic);
  const auto found = held_.find(topic);
  found->second.due = false;
  if (found->second.events.empty()) {
    held_.erase(found);
  }
  due_.pop_front();
}

void HeldTopics::Postpone(const std::string& topic) {
  CHECK(!due_.empty() && due_.front() == topic);
  postponed_.push_back(topic);
  due_.pop_front();
}

bool HeldTopics::EndRound() {
  if (postponed_.empty()) {
    return false;
  }
  due_.insert(due_.begin(), postponed_.begin(), postponed_.end());
  postponed_.clear();
  return true;
}

std::optional<base::MonotonicTime> HeldTopics::NextDeadline() const {
  return timers_.empty() ? std::nullopt : std::optional(timers_.begin()->first);
}

void HeldTopics::ForgetQueues() {
  held_.clear();
  tried_.clear();
  pending_.clear();
  due_.clear();
  postponed_.clear();
  timers_.clear();
  events_ = 0;
}

void HeldTopics::ForgetAll() {
  ForgetQueues();
  troubles_.clear();
  answers_.clear();
  rejections_->Forget();
}

void HeldTopics::BoundAnswers(const std::string& newest) {
  answers_.push_back(newest);
  if (answers_.size() <= kAnswersMax) {
    return;
  }
  const auto oldest = troubles_.find(answers_.front());
  answers_.pop_front();
  if (oldest == troubles_.end() || !oldest->second.decided) {
    return;
  }
  if (IsHeld(oldest->first)) {
    answers_.push_back(oldest->first);
  } else {
    troubles_.erase(oldest);
  }
}

}  // namespace walpost::pipeline
