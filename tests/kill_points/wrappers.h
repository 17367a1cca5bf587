// WrappersWith - a kill point around everything that the loop meets of the outside.
// Lifetime: `point` must outlive what they wrap.
#pragma once

#include "kill_points/kill_point.h"
#include "runtime/run.h"

namespace walpost::testing {

runtime::Wrappers WrappersWith(KillPoint* point);

}  // namespace walpost::testing
