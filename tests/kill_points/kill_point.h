// KillPoint - one place where the loop meets the outside, at which the process dies or dawdles.
//   How: WALPOST_KILL_POINT = <place>:crash:<N> dies as by kill -9 when the place is passed for the
//   Nth time; <place>:delay:<N>:<ms> stands still that long at every Nth passage. Unset: nothing
//   happens.
// Thread: each place is passed by one thread alone.   Lifetime: the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace walpost::testing {

enum class Place {
  kNone,
  kBeforeConnect,
  kAfterConnect,   // the slot is ours and the server streams; the loop does not know yet
  kAfterSubmit,    // the sink has taken a record
  kAfterReport,    // the pipeline got the report of a delivered event, and has not acted on it
  kAfterProgress,  // the same of a progress record: what may be confirmed is not yet
  kAfterStatus,    // a standby status was handed to the socket
};

class KillPoint {
 public:
  // CHECK-fails on a value that is not as above.
  static KillPoint FromEnvironment();

  void Pass(Place place);

 private:
  Place place_ = Place::kNone;
  std::uint64_t at_ = 0;
  std::chrono::milliseconds delay_{0};  // zero = crash
  std::uint64_t passed_ = 0;
};

}  // namespace walpost::testing
