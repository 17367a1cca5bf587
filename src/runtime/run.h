// Run - the verb `run`: the loop that drives a pipeline between PostgreSQL and Kafka until SIGTERM
// or SIGINT.
// Thread: the main thread is the loop; the helper's may block. Blocks SIGTERM, SIGINT
//   and SIGHUP, so call it before other threads exist. Returns the process's exit code: 0 after a
//   clean stop, base::HaltExitCode with on_halt=exit, 78 when an option is unusable (the message is
//   logged).
#pragma once

#include "absl/status/status.h"
#include "runtime/dependencies.h"
#include "runtime/options.h"

namespace walpost::runtime {

int Run(const RunOptions& options, const Wrappers& wrappers = {});

// What libpq and librdkafka would reject, found without connecting anywhere. kInvalidArgument.
absl::Status Validate(const RunOptions& options);

}  // namespace walpost::runtime
