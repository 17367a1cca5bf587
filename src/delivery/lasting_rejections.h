// LastingRejections - when a rejection counts that may pass by itself.
// Why: a broker learns of a right, a limit or a new partition later than another one, so what it
//   says counts when it has said the same for a while. Who writes records that no topic takes must
//   not hold a topic for that while again and again, nor shorten it for a record that is taken.
// How: a rejection has a kind, the limit that was read last, and how much of it the record needs.
//   Where the limit is a larger one, the time begins anew. Once it has lasted, the next one of the
//   topic and kind counts at once, or soon, for minutes: if the limit of then would not take the
//   record, and it does not need much less. A doubtful rejection has times of its own.
// Thread: a value; pure.
// Units/limits: two entries for each topic and kind, of kTopicsMax topics. Where so many wait, one
//   more waits until one of them has its answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "delivery/sink.h"
#include "envelope/record.h"

namespace walpost::delivery {

struct Rejection {
  FailureKind kind = FailureKind::kNone;
  // Of the topic, as it was read last; a larger one takes more. 0 = never read, or there is none.
  std::int64_t limit = 0;
  std::int64_t limit_wanted = 0;  // the smallest that takes the record; 0 = not known
  std::size_t need = 1;           // of the record; 1 where there is no more or less
  bool silent = false;            // not all brokers have answered
  std::optional<base::MonotonicTime> contradicted_at = std::nullopt;  // as Failure has it

  bool IsTakenBy(std::int64_t other) const { return limit_wanted != 0 && limit_wanted <= other; }

  // Whoever rejects it may be behind.
  bool IsDoubtful() const { return silent || IsTakenBy(limit); }

  // A limit of before took it, and the one of now does not: what was said then says nothing.
  bool IsTakenOnlyBy(std::int64_t before) const { return IsTakenBy(before) && !IsTakenBy(limit); }
};

class LastingRejections {
 public:
  // Those that come one after the other count at once. Later ones about a record must last for
  // kWaitAgain, up to kKept after the last one.
  static constexpr std::chrono::milliseconds kAtOnce{10'000};
  static constexpr std::chrono::milliseconds kWaitAgain{1'000};
  static constexpr std::chrono::milliseconds kKept{300'000};
  // A record that is not tried for longer than this does not wait.
  static constexpr std::chrono::milliseconds kTriedWithin{60'000};
  static constexpr std::size_t kTopicsMax = 10'000;
  // While some brokers do not answer, what the others say must last so many times as long: all of
  // them may be behind.
  static constexpr int kSilentTimes = 6;

  explicit LastingRejections(std::chrono::milliseconds wait) : wait_(wait) {}

  bool empty() const { return topics_.empty(); }

  // A record of the topic was rejected. Returns how much longer it must last: 0 = it counts.
  // Nothing is known of the time between two rejections, so no more than `counted_max` of it
  // counts.
  std::chrono::milliseconds Count(std::string_view topic, const Rejection& rejection,
                                  std::chrono::milliseconds counted_max, base::MonotonicTime now);

  // The same for what a broker said of a record, which may be one that need not last.
  std::chrono::milliseconds Count(const envelope::Record& record, const Failure& failure,
                                  std::chrono::milliseconds counted_max, base::MonotonicTime now);

  // The topic has taken the record: a time that runs for it, or for one that needs less, ends. What
  // has lasted about records does not: who writes both in turn would hold the topic again.
  void OnTaken(const envelope::Record& record, base::MonotonicTime now);

  // Something else was said about a record of the topic: no time goes on.
  void OnOther(std::string_view topic);

  // The limit was read.
  void OnLimit(std::string_view topic, FailureKind kind, std::int64_t limit);

  void Forget() { topics_.clear(); }

  // It was made anew: nothing that was said of it counts.
  void ForgetTopic(std::string_view topic);

 private:
  // From the first one of the same limit to the one that counts.
  struct Time {
    std::int64_t limit = 0;
    std::size_t need = 1;
    std::chrono::milliseconds passed{0};
    base::MonotonicTime counted_to;
  };

  struct Lasted {
    std::int64_t limit = 0;
    std::size_t need = 1;
    base::MonotonicTime counted_to;  // the last one that counted
  };

  struct Entry {
    std::int64_t limit = 0;  // the largest
    std::optional<Time> time;
    std::optional<Lasted> lasted;
    std::optional<Time> again;  // of records that `lasted` shortens
  };

  using Key = std::pair<FailureKind, bool>;  // whether it is doubtful

  struct Topic {
    std::map<Key, Entry> entries;
    base::MonotonicTime counted_at;  // the last rejection
    base::MonotonicTime silent_at;   // the last one while not all brokers answered
  };

  // How long a rejection must last when `lasted` shortens its time.
  std::chrono::milliseconds WaitAgain(const Lasted& lasted, base::MonotonicTime now) const;
  bool IsOld(FailureKind kind, const Lasted& lasted, base::MonotonicTime now) const;
  // Whether a time runs for a rejection of the topic.
  static bool Waits(const Topic& topic, base::MonotonicTime now);
  // Null when so many others wait that there is no place for it.
  Topic* Find(std::string_view name, base::MonotonicTime now);

  const std::chrono::milliseconds wait_;
  std::map<std::string, Topic, std::less<>> topics_;
};

}  // namespace walpost::delivery
