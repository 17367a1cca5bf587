// Version - which libraries this process really runs with.
#pragma once

#include <string>

namespace walpost::operations {

std::string VersionText(const std::string& version);

}  // namespace walpost::operations
