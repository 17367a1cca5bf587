#include "pipeline/schema_look_ups.h"

#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace walpost::pipeline {

using envelope::SchemaTable;
using State = SchemaTable::State;

std::optional<SchemaLookUp> SchemaLookUps::Take(base::Now now) {
  if (asking_ || now.mono < ask_at_ || (table_.wanted().empty() && now.mono < look_at_)) {
    return std::nullopt;
  }
  std::vector<Due> due = FindWaiting(now.mono);
  if (now.mono >= look_at_) {
    look_at_ = now.mono + kLookEvery;
    AddRefreshes(now.mono, &due);
  }
  SchemaLookUp look_up;
  for (const SchemaTable::Ref ref : InTurns(std::move(due), now.mono)) {
    look_up.needs.emplace_back(ref, table_.entry(ref).need);
  }
  if (look_up.needs.empty()) {
    ask_at_ = table_.wanted().empty() ? ask_at_ : now.mono + kPause;
    return std::nullopt;
  }
  asking_ = true;
  asked_at_ = now.mono;
  return look_up;
}

std::vector<SchemaLookUps::Due> SchemaLookUps::FindWaiting(base::MonotonicTime now) {
  std::vector<Due> due;
  for (const SchemaTable::Ref ref : table_.wanted()) {
    Times& times = TimesOf(ref);
    if (std::exchange(times.rejected, false) || times.due == base::MonotonicTime()) {
      times.due = now;  // its rejection was forgotten, or it is new
    }
    if (now >= times.due) {
      due.push_back({LaneOf(ref), times.due, ref});
    }
  }
  return due;
}

void SchemaLookUps::AddRefreshes(base::MonotonicTime now, std::vector<Due>* due) {
  for (SchemaTable::Ref ref = 1; ref <= table_.size(); ++ref) {
    Times& times = TimesOf(ref);
    if (now < times.due) {
      continue;
    }
    const SchemaTable::Entry& entry = table_.entry(ref);
    if (entry.state == State::kRejected) {
      table_.Forget(ref);
    } else if (entry.state == State::kKnown && !entry.fixed && entry.used) {
      due->push_back({LaneOf(ref), times.due, ref});
    }
  }
}

SchemaLookUps::Lane SchemaLookUps::LaneOf(SchemaTable::Ref ref) const {
  const SchemaTable::Entry& entry = table_.entry(ref);
  return Lane{entry.need.source} * 2 + (entry.state == State::kKnown ? 1 : 0);
}

// First the one of each lane that is due for longest, beginning behind the lane that was served
// last; then the next ones.
std::vector<SchemaTable::Ref> SchemaLookUps::InTurns(std::vector<Due> due,
                                                     base::MonotonicTime now) {
  std::sort(due.begin(), due.end());
  std::map<Lane, std::size_t> turns;
  std::vector<std::tuple<std::size_t, Lane, SchemaTable::Ref>> in_turns;
  for (const Due& each : due) {
    const bool unclear = TimesOf(each.ref).unclear > 0;
    std::size_t& turn = turns[each.lane];
    if (unclear && (now < unclear_from_ ||
                    (turn > 0 && !IsPatienceOver(table_.entry(each.ref).need.source)))) {
      continue;  // it could decide nothing
    }
    in_turns.emplace_back(turn++, each.lane - last_lane_ - 1, each.ref);
  }
  std::sort(in_turns.begin(), in_turns.end());
  in_turns.resize(std::min(in_turns.size(), kNeedsMax));
  std::vector<SchemaTable::Ref> refs;
  for (const auto& [turn, lane, ref] : in_turns) {
    refs.push_back(ref);
  }
  return refs;
}

// A ref may have come to mean another schema.
SchemaLookUps::Times& SchemaLookUps::TimesOf(SchemaTable::Ref ref) {
  times_.resize(std::max<std::size_t>(times_.size(), ref));
  Times& times = times_[ref - 1];
  if (times.made_in != table_.entry(ref).made_in) {
    times = Times();
    times.made_in = table_.entry(ref).made_in;
  }
  return times;
}

void SchemaLookUps::OnAnswers(const SchemaLookUp& look_up, const SchemaAnswers& answers,
                              base::Now now) {
  CHECK(asking_ && !answers.empty() && answers.size() <= look_up.needs.size());
  asking_ = false;
  bool answered = false;  // by the registry
  std::string unclear;    // the first
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const SchemaTable::Ref ref = look_up.needs[i].first;
    last_lane_ = LaneOf(ref);
    if (absl::IsUnavailable(answers[i].status())) {
      ++statistics_.failures;
      trouble_ = std::string(answers[i].status().message());
      trouble_until_ = now.mono;
      if (answered) {
        backoff_.Reset();
      }
      away_since_ = away_since_.value_or(asked_at_);  // the question may have taken long
      ask_at_ = now.mono + backoff_.Next();
      TimesOf(ref).due = ask_at_;  // behind the others
      return;
    }
    if (!absl::IsOutOfRange(answers[i].status())) {
      answered = true;
      OnAnswered(now.mono);
    }
    if (TimesOf(ref).unclear > 0) {
      unclear_from_ = asked_at_ + kLookEvery;
    }
    if (Decides(ref, answers[i].status(), now)) {
      Judge(ref, answers[i], now);
      continue;
    }
    ++statistics_.failures;
    if (unclear.empty() && table_.entry(ref).state == State::kUnknown) {
      unclear = std::string(answers[i].status().message());
    }
  }
  ask_at_ = now.mono;
  if (!answered) {
    return;
  }
  backoff_.Reset();
  if (!AnyUnclear(std::nullopt)) {
    trouble_.clear();
  } else if (!unclear.empty() && (trouble_.empty() || now.mono >= trouble_until_)) {
    trouble_ = std::move(unclear);  // and not each time another name that a writer chose
    trouble_until_ = now.mono + kTroubleKept;
  }
}

bool SchemaLookUps::Decides(SchemaTable::Ref ref, const absl::Status& answer, base::Now now) {
  Times& times = TimesOf(ref);
  const SchemaTable::Entry& entry = table_.entry(ref);
  if (!absl::IsAborted(answer)) {
    if (std::exchange(times.unclear, 0) > 0 && !AnyUnclear(entry.need.source)) {
      patience_.erase(entry.need.source);  // such answers pass here
    }
    return true;
  }
  if (entry.state != State::kUnknown) {  // a refresh: nobody waits for it
    times.due = now.mono + kRejectionKept;
    return false;
  }
  times.due = now.mono + kLookEvery;
  CountUnclear(entry.need.source, now.mono);
  ++times.unclear;
  if (!IsPatienceOver(entry.need.source) || times.unclear < kUnclearAnswers) {
    return false;
  }
  times.unclear = 0;
  return true;
}

// Time counts up to the first question that failed.
void SchemaLookUps::OnAnswered(base::MonotonicTime now) {
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(
      away_since_.value_or(now) - answered_at_);
  answered_for_ += std::clamp(passed, std::chrono::milliseconds(0), kCountedMax);
  answered_at_ = now;
  if (away_since_ && now - *away_since_ >= kAwayMin) {
    ForgetUnclear();
  }
  away_since_.reset();
}

void SchemaLookUps::ForgetUnclear() {
  for (Times& times : times_) {
    times.unclear = 0;
  }
}

void SchemaLookUps::CountUnclear(std::uint32_t source, base::MonotonicTime now) {
  const auto [found, added] = patience_.try_emplace(source, Patience{answered_for_, now});
  if (now - found->second.at > kUnclearKept && !AnyUnclear(source)) {
    found->second.began = answered_for_;
  }
  found->second.at = now;
}

bool SchemaLookUps::AnyUnclear(std::optional<std::uint32_t> source) {
  const std::set<SchemaTable::Ref>& wanted = table_.wanted();
  return std::any_of(wanted.begin(), wanted.end(), [&](SchemaTable::Ref ref) {
    return TimesOf(ref).unclear > 0 && (!source || table_.entry(ref).need.source == *source);
  });
}

bool SchemaLookUps::IsPatienceOver(std::uint32_t source) const {
  const auto found = patience_.find(source);
  return found != patience_.end() && answered_for_ - found->second.began >= kUnclearFor;
}

void SchemaLookUps::Judge(SchemaTable::Ref ref, const absl::StatusOr<envelope::Schema>& answer,
                          base::Now now) {
  ++statistics_.look_ups;
  const absl::StatusOr<std::string> frame =
      answer.ok() ? envelope::FrameOf(table_.entry(ref).need, *answer) : answer.status();
  if (frame.ok()) {
    table_.Learn(ref, *frame, answer->fixed);
    TimesOf(ref).due = now.mono + refresh_;
    return;
  }
  ++statistics_.rejections;
  const bool known = table_.entry(ref).state == State::kKnown;
  table_.Reject(ref, std::string(frame.status().message()), absl::IsAborted(answer.status()));
  TimesOf(ref).due = now.mono + (known ? refresh_ : kRejectionKept);
  TimesOf(ref).rejected = !known;
}

void SchemaLookUps::Resume(base::Now now) {
  table_.ForgetRejections();
  ForgetUnclear();
  patience_.clear();
  backoff_.Reset();
  ask_at_ = now.mono;
  for (const SchemaTable::Ref ref : table_.wanted()) {
    TimesOf(ref).due = now.mono;
  }
}

std::optional<base::MonotonicTime> SchemaLookUps::NextDeadline() const {
  return asking_ || table_.wanted().empty() ? std::nullopt : std::optional(ask_at_);
}

}  // namespace walpost::pipeline
