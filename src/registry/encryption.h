// Encryption of the connections to a Schema Registry: https, or not.
// Thread: any.
#pragma once

#include <string>

#include "registry/options.h"

namespace walpost::registry {

// The first URL that is asked in clear text over a network; empty = none.
std::string ClearTextUrl(const RegistryOptions& options);

// A line for an operator about it; empty = none.
std::string ClearTextWarning(const RegistryOptions& options);

}  // namespace walpost::registry
