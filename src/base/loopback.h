// IsLoopbackHost - does this name of a host lead to this machine, whoever resolves it?
// Why here: postgres, kafka, registry and config ask, and none of them may use another for it.
// Thread: any.
#pragma once

#include <string_view>

namespace walpost::base {

// "localhost", 127.0.0.0/8 and ::1, the latter with or without brackets. Any other name may lead anywhere.
bool IsLoopbackHost(std::string_view host);

}  // namespace walpost::base
