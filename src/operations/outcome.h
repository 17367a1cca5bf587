// Outcome - what a verb prints and how it ends. Verbs print nothing themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace walpost::operations {

// As in sysexits.
inline constexpr int kExitUsage = 64;
inline constexpr int kExitData = 65;
inline constexpr int kExitNoInput = 66;
inline constexpr int kExitUnavailable = 69;
inline constexpr int kExitSoftware = 70;
inline constexpr int kExitRetryLater = 75;
inline constexpr int kExitNoPermission = 77;
inline constexpr int kExitConfig = 78;

struct Outcome {
  int exit_code = 0;
  std::string output;  // for stdout: data
  std::string error;   // for stderr: one line, what, where, what to do
  // For machines, such as JSON or an event's value: not to be changed. All else may quote what others
  // chose, so it is shown without what a terminal obeys.
  bool as_it_is = false;

  std::string Output() const;
  std::string Error() const;
};

// 69 for what may work later, 75 (kAborted) for what is not known yet, 77 for permission, 70 for our own
// bugs, 78 for all that an operator must set right.
int ExitCodeOf(const absl::Status& status);

Outcome Failed(const absl::Status& status);

// Done, but for rows whose topics take nothing at all: 65. 0 rows: as it is.
Outcome Done(std::uint64_t closed_out);

// On a terminal: what a long verb is at, and how far.
using OnProgress =
    std::function<void(const std::string& what, std::uint64_t done, std::uint64_t of)>;

// A line for stderr at once, about one of many rows.
using OnWarning = std::function<void(const std::string& line)>;

}  // namespace walpost::operations
