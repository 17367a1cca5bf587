// LibpqVersion - of the library loaded, "15.18".
#pragma once

#include <string>

namespace walpost::postgres {

std::string LibpqVersion();

}  // namespace walpost::postgres
