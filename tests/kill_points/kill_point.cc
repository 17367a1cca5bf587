#include "kill_points/kill_point.h"

#include <glog/logging.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace walpost::testing {
namespace {

constexpr std::array<std::pair<std::string_view, Place>, 6> kPlaces{{
    {"before_connect", Place::kBeforeConnect},
    {"after_connect", Place::kAfterConnect},
    {"after_submit", Place::kAfterSubmit},
    {"after_report", Place::kAfterReport},
    {"after_progress", Place::kAfterProgress},
    {"after_status", Place::kAfterStatus},
}};

Place PlaceOf(std::string_view name) {
  for (const auto& [known, place] : kPlaces) {
    if (known == name) {
      return place;
    }
  }
  LOG(FATAL) << "WALPOST_KILL_POINT: no place is called " << name;
}

std::uint64_t Number(const std::string& text) {
  std::uint64_t number = 0;
  CHECK(absl::SimpleAtoi(text, &number) && number > 0)
      << "WALPOST_KILL_POINT: no number above 0: " << text;
  return number;
}

}  // namespace

KillPoint KillPoint::FromEnvironment() {
  KillPoint point;
  const char* const value = std::getenv("WALPOST_KILL_POINT");
  if (value == nullptr) {
    return point;
  }
  const std::vector<std::string> parts = absl::StrSplit(value, ':');
  const bool crash = parts.size() == 3 && parts[1] == "crash";
  const bool delay = parts.size() == 4 && parts[1] == "delay";
  CHECK(crash || delay) << "WALPOST_KILL_POINT: not understood: " << value;
  point.place_ = PlaceOf(parts[0]);
  point.at_ = Number(parts[2]);
  if (delay) {
    point.delay_ = std::chrono::milliseconds(Number(parts[3]));
  }
  return point;
}

void KillPoint::Pass(Place place) {
  if (place != place_ || ++passed_ % at_ != 0) {
    return;
  }
  if (delay_.count() == 0) {
    raise(SIGKILL);
  }
  std::fputs("kill point: standing still\n", stderr);  // the test counts them
  std::this_thread::sleep_for(delay_);
}

}  // namespace walpost::testing
