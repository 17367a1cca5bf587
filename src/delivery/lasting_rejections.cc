#include "delivery/lasting_rejections.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

namespace walpost::delivery {

using std::chrono::milliseconds;

namespace {

// In steps, so that a writer who makes each record a little smaller waits a few times only.
bool NeedsMuchLess(std::size_t need, std::size_t than) { return need < than - than / 4; }

// Whether what was said before speaks of this record, too.
template <typename Said>
bool IsLike(const Rejection& rejection, const Said& before) {
  return !NeedsMuchLess(rejection.need, before.need) && !rejection.IsTakenOnlyBy(before.limit) &&
         !(rejection.contradicted_at && *rejection.contradicted_at >= before.counted_to);
}

// How much a record needs of what rejections of the kind are about; 0 = nothing.
std::size_t NeedOf(FailureKind kind, const envelope::Record& record) {
  switch (kind) {
    case FailureKind::kRecordTooLarge:
      return record.AccountedBytes();
    case FailureKind::kRecordInvalid:
      return record.key ? 0 : 1;
    default:
      return 1;
  }
}

}  // namespace

milliseconds LastingRejections::Count(std::string_view topic, const Rejection& rejection,
                                      milliseconds counted_max, base::MonotonicTime now) {
  Topic* found = Find(topic, now);
  if (found == nullptr) {
    return wait_;
  }
  Entry& entry = found->entries[{rejection.kind, rejection.IsDoubtful()}];
  if (rejection.limit > entry.limit) {
    entry = {rejection.limit, {}, {}, {}};
  }
  const bool sooner = entry.lasted && IsLike(rejection, *entry.lasted) &&
                      !IsOld(rejection.kind, *entry.lasted, now);
  std::optional<Time>& time = sooner ? entry.again : entry.time;
  if (!time || now >= time->counted_to + kKept || !IsLike(rejection, *time)) {
    time = {rejection.limit, rejection.need, milliseconds(0), now};
  }
  const int slower = rejection.silent ? kSilentTimes : 1;
  if (rejection.silent) {
    found->silent_at = now;
  }
  if (rejection.silent || found->silent_at <= time->counted_to) {  // else not all had answered
    time->passed +=
        std::min(std::chrono::duration_cast<milliseconds>(now - time->counted_to), counted_max) /
        slower;
  }
  time->counted_to = now;
  const milliseconds wait = sooner ? WaitAgain(*entry.lasted, now) : wait_;
  if (time->passed < wait) {
    return (wait - time->passed) * slower;
  }
  entry.lasted = {sooner ? entry.lasted->limit : time->limit,
                  sooner ? entry.lasted->need : time->need, now};
  time.reset();
  return milliseconds(0);
}

milliseconds LastingRejections::Count(const envelope::Record& record, const Failure& failure,
                                      milliseconds counted_max, base::MonotonicTime now) {
  return failure.must_last ? Count(record.topic,
                                   {.kind = failure.kind,
                                    .limit = failure.limit,
                                    .limit_wanted = failure.limit_wanted,
                                    .need = NeedOf(failure.kind, record),
                                    .silent = failure.silent,
                                    .contradicted_at = failure.contradicted_at},
                                   counted_max, now)
                           : milliseconds(0);
}

milliseconds LastingRejections::WaitAgain(const Lasted& lasted, base::MonotonicTime now) const {
  return now < lasted.counted_to + kAtOnce ? milliseconds(0) : std::min(wait_, kWaitAgain);
}

// About a record it is kept longer by the time that the topic may have waited for other kinds
// since. A right may be granted at any moment, and no limit shows it.
bool LastingRejections::IsOld(FailureKind kind, const Lasted& lasted,
                              base::MonotonicTime now) const {
  constexpr int kOtherKinds = 2;
  return now >= lasted.counted_to + (IsAboutARecord(kind) ? kKept + kOtherKinds * wait_ : kAtOnce);
}

void LastingRejections::OnTaken(const envelope::Record& record, base::MonotonicTime now) {
  const auto found = topics_.find(record.topic);
  if (found == topics_.end()) {
    return;
  }
  for (auto& [key, entry] : found->second.entries) {
    const FailureKind kind = key.first;
    const std::size_t need = NeedOf(kind, record);
    for (std::optional<Time>* time : {&entry.time, &entry.again}) {
      if (*time && (need >= (*time)->need || now >= (*time)->counted_to + kKept)) {
        time->reset();
      }
    }
    if (entry.lasted && (!IsAboutARecord(kind) || IsOld(kind, *entry.lasted, now))) {
      entry.lasted.reset();
    }
  }
  std::erase_if(found->second.entries, [](const auto& kind) {
    return !kind.second.time && !kind.second.lasted && !kind.second.again;
  });
  if (found->second.entries.empty()) {
    topics_.erase(found);
  }
}

void LastingRejections::OnOther(std::string_view topic) {
  if (const auto found = topics_.find(topic); found != topics_.end()) {
    for (auto& [key, entry] : found->second.entries) {
      entry.time.reset();
      entry.again.reset();
    }
  }
}

void LastingRejections::OnLimit(std::string_view topic, FailureKind kind, std::int64_t limit) {
  const auto found = topics_.find(topic);
  if (found != topics_.end()) {
    std::erase_if(found->second.entries, [&](const auto& each) {
      return each.first.first == kind && limit > each.second.limit;
    });
  }
}

void LastingRejections::ForgetTopic(std::string_view topic) {
  if (const auto found = topics_.find(topic); found != topics_.end()) {
    topics_.erase(found);
  }
}

bool LastingRejections::Waits(const Topic& topic, base::MonotonicTime now) {
  const auto runs = [now](const std::optional<Time>& time) {
    return time && now < time->counted_to + kTriedWithin;
  };
  return std::any_of(topic.entries.begin(), topic.entries.end(), [&](const auto& each) {
    return runs(each.second.time) || runs(each.second.again);
  });
}

LastingRejections::Topic* LastingRejections::Find(std::string_view name, base::MonotonicTime now) {
  CHECK(!name.empty());
  auto found = topics_.find(name);
  if (found == topics_.end()) {
    if (topics_.size() >= kTopicsMax) {
      // Its next one must last as long as the first.
      const auto forgotten =
          std::min_element(topics_.begin(), topics_.end(), [&](const auto& a, const auto& b) {
            return std::pair(Waits(a.second, now), a.second.counted_at) <
                   std::pair(Waits(b.second, now), b.second.counted_at);
          });
      if (Waits(forgotten->second, now)) {
        return nullptr;  // in turn they would forget each other, and none would ever count
      }
      topics_.erase(forgotten);
    }
    found = topics_.emplace(name, Topic()).first;
  }
  found->second.counted_at = now;
  return &found->second;
}

}  // namespace walpost::delivery
