// ReadFile - the whole of a file, or of a pipe that ends in time: a configuration, a secret, descriptors.
// Why: a path that an operator gives may lead to a pipe that nobody writes to, or to a device without an end.
//   It stands here because `config` reads files, too, and may use this module; the core does no I/O.
// Thread: free functions; blocking.
// Units/limits: 10 s for what is no plain file, and bytes as the caller says.
// Errors: kNotFound when there is none, kInvalidArgument when it cannot be read or is larger; the message says
//   why and leaves it to the caller to name the file.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace walpost::registry {

absl::StatusOr<std::string> ReadFile(const std::string& path, std::size_t bytes_max);

}  // namespace walpost::registry
