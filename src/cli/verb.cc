#include "cli/verb.h"

#include <string>

namespace walpost::cli {

operations::Outcome UsageError(const absl::Status& status) {
  return operations::Outcome{operations::kExitUsage, "", std::string(status.message())};
}

}  // namespace walpost::cli
