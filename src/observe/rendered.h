// Rendered - a body that is made once for each snapshot, however many ask for it.
// Why: fifty open pages and a few scrapers ask for the same; what that costs must not grow with them.
// Thread: any; who comes while it is being made waits for it.
// Units/limits: no older than kYoungerThan, since it also has figures of the process, which a new
//   snapshot does not bring.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/time.h"
#include "observe/snapshot.h"

namespace walpost::observe {

class Rendered {
 public:
  using Render = std::function<std::string(const Snapshot&)>;

  static constexpr std::chrono::milliseconds kYoungerThan{1'000};

  explicit Rendered(Render render) : render_(std::move(render)) {}

  // `snapshot` may be null, before the first: then it is that of an empty one.
  std::string Of(const std::shared_ptr<const Snapshot>& snapshot, base::MonotonicTime now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!made_ || snapshot != snapshot_ || now - made_at_ >= kYoungerThan) {
      body_ = render_(snapshot ? *snapshot : Snapshot());
      made_ = true;
      snapshot_ = snapshot;
      made_at_ = now;
    }
    return body_;
  }

 private:
  const Render render_;
  std::mutex mutex_;
  // Guarded by mutex_.
  bool made_ = false;
  std::string body_;
  std::shared_ptr<const Snapshot> snapshot_;  // what it is of
  base::MonotonicTime made_at_;
};

}  // namespace walpost::observe
