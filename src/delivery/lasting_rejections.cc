#include "delivery/lasting_rejections.h"

#include <algorithm>
#include <utility>

namespace walpost::delivery {

using std::chrono::milliseconds;

namespace {

// In steps, so that a writer who makes each record a little smaller waits a few times only.
bool NeedsMuchLess(std::size_t need, std::size_t than) { return need < than - than / 4; }

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
  Entry& entry = *Find(topic, rejection.kind);
  if (entry.limit != rejection.limit) {
    entry = {rejection.limit, {}, {}};
  }
  if (!entry.time || now >= entry.time->counted_to + kKept ||
      NeedsMuchLess(rejection.need, entry.time->need)) {
    entry.time = {rejection.need, milliseconds(0), now};
  }
  Time& time = *entry.time;
  time.passed +=
      std::min(std::chrono::duration_cast<milliseconds>(now - time.counted_to), counted_max);
  time.counted_to = now;
  const milliseconds wait = WaitFor(entry, rejection.need, now);
  if (time.passed < wait) {
    return wait - time.passed;
  }
  // What counted sooner because of others says nothing of records that need less than those.
  const std::size_t need = time.passed >= wait_ ? time.need : entry.lasted->need;
  entry.lasted = {need, now};
  entry.time.reset();
  return milliseconds(0);
}

milliseconds LastingRejections::Count(const envelope::Record& record, const Failure& failure,
                                      milliseconds counted_max, base::MonotonicTime now) {
  return failure.must_last
             ? Count(record.topic, {failure.kind, failure.limit, NeedOf(failure.kind, record)},
                     counted_max, now)
             : milliseconds(0);
}

bool LastingRejections::IsOld(const Lasted& lasted, base::MonotonicTime now) const {
  constexpr int kOtherKinds = 2;
  return now >= lasted.at + kKept + kOtherKinds * wait_;
}

milliseconds LastingRejections::WaitFor(const Entry& entry, std::size_t need,
                                        base::MonotonicTime now) const {
  if (!entry.lasted || NeedsMuchLess(need, entry.lasted->need) || IsOld(*entry.lasted, now)) {
    return wait_;
  }
  return now < entry.lasted->at + kAtOnce ? milliseconds(0) : std::min(wait_, kWaitAgain);
}

void LastingRejections::OnTaken(const envelope::Record& record, base::MonotonicTime now) {
  const auto found = topics_.find(record.topic);
  if (found == topics_.end()) {
    return;
  }
  for (auto& [kind, entry] : found->second) {
    const std::size_t need = NeedOf(kind, record);
    if (entry.time && (need >= entry.time->need || now >= entry.time->counted_to + kKept)) {
      entry.time.reset();
    }
    if (entry.lasted && (need >= entry.lasted->need || IsOld(*entry.lasted, now))) {
      entry.lasted.reset();
    }
  }
  std::erase_if(found->second,
                [](const auto& kind) { return !kind.second.time && !kind.second.lasted; });
  if (found->second.empty()) {
    topics_.erase(found);
  }
}

void LastingRejections::OnLimit(std::string_view topic, FailureKind kind, std::int64_t limit) {
  const auto found = topics_.find(topic);
  if (found != topics_.end()) {
    std::erase_if(found->second, [&](const auto& each) {
      return each.first == kind && each.second.limit != limit;
    });
  }
}

LastingRejections::Entry* LastingRejections::Find(std::string_view topic, FailureKind kind) {
  auto found = topics_.find(topic);
  if (found == topics_.end()) {
    if (topics_.size() >= kTopicsMax) {
      topics_.erase(topics_.begin());  // its next one must last as long as the first
    }
    found = topics_.emplace(topic, std::map<FailureKind, Entry>()).first;
  }
  return &found->second[kind];
}

}  // namespace walpost::delivery
