#include "progress_log.h"

#include <tuple>

namespace walpost::simulation {
namespace {

// Clusters change with the epoch only.
bool IsAbove(const base::Progress& progress, const std::optional<base::Progress>& other) {
  return !other || std::tie(progress.epoch, progress.timeline, progress.end_lsn) >=
                       std::tie(other->epoch, other->timeline, other->end_lsn);
}

// Of two at one position the later counts, also when it landed first.
bool Counts(const base::Progress& progress, const std::optional<base::Progress>& other) {
  return IsAbove(progress, other) &&
         (!IsAbove(*other, progress) || progress.recorded_at >= other->recorded_at);
}

}  // namespace

void ProgressLog::Append(const base::Progress& progress) {
  records_.push_back(progress);
  if (!newest_ || Counts(progress, newest_)) {
    newest_ = progress;
  }
  if (IsAbove(progress, highest_)) {
    highest_ = progress;
  }
}

void ProgressLog::Delete() {
  records_.clear();
  newest_.reset();
}

bool ProgressLog::Compact(std::size_t closed) {
  std::optional<base::Progress> counts;
  for (std::size_t i = 0; i < closed; ++i) {
    if (counts && !Counts(records_[i], counts)) {
      if (i + 1 == closed) {
        return false;
      }
      continue;
    }
    counts = records_[i];
  }
  if (closed > 1) {
    records_.erase(records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(closed) - 1);
  }
  return closed > 1;
}

bool ProgressLog::lacks() const { return highest_ && (!newest_ || !IsAbove(*newest_, highest_)); }

}  // namespace walpost::simulation
