// CheckLine - one finding of `walpost check`.
#pragma once

#include <string>

namespace walpost::operations {

struct CheckLine {
  enum class Level { kOk, kWarning, kFailed };

  Level level = Level::kOk;
  std::string name;
  std::string text;  // what was found; for a problem also how to mend it
};

}  // namespace walpost::operations
