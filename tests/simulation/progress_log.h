// ProgressLog - the topic of remembered progress as it stands.
// Why: what counts of it is found here once more, by other means than walpost's.
// Thread: one owner.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/source_facts.h"

namespace walpost::simulation {

class ProgressLog {
 public:
  static constexpr char kTopic[] = "walpost-progress";

  void Append(const base::Progress& progress);

  // By someone else.
  void Delete();

  // What Kafka does: of the first `closed` records, which lie in segments that are closed, only the
  // last stays. Those behind them are not touched. All have one key. False: the last one does not
  // count, because it landed late, from a process that is gone; that it stays the last one until
  // its segment is closed, days later, is not modelled.
  bool Compact(std::size_t closed);

  // A first start, or an operator's decision: nothing of before counts any more.
  void BeginAnew() { highest_.reset(); }

  const std::vector<base::Progress>& records() const { return records_; }

  // The one that counts of those that stand there.
  const std::optional<base::Progress>& newest() const { return newest_; }

  // The same of all that ever stood there.
  const std::optional<base::Progress>& highest() const { return highest_; }

  // Something that counted was deleted, and nothing as high was written since.
  bool lacks() const;

 private:
  std::vector<base::Progress> records_;
  std::optional<base::Progress> newest_;
  std::optional<base::Progress> highest_;
};

}  // namespace walpost::simulation
