// WalRate - how fast the server writes WAL, from the positions it reports.
// Why: how long the slot's room lasts is what a person wants to know, not how large it is.
// Thread: a value, no clock.
// Units/limits: over the last kWindow at most, a point every kEvery; nothing before kLeast.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::runtime {

class WalRate {
 public:
  static constexpr std::chrono::minutes kWindow{30};
  static constexpr std::chrono::seconds kEvery{15};
  static constexpr std::chrono::seconds kLeast{60};

  // `position` was true at `now`. A lower one (another server) begins anew.
  void Add(base::MonotonicTime now, base::Lsn position);

  std::optional<double> BytesPerSecond() const;

 private:
  struct Point {
    base::MonotonicTime at;
    base::Lsn position;
  };

  std::deque<Point> points_;  // the last one moves until it is kEvery behind the one before
};

}  // namespace walpost::runtime
