// AddVerb - a verb of the command line that runs with the configuration.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/config.h"
#include "operations/outcome.h"

namespace walpost::cli {

using Verb = std::function<operations::Outcome(const config::Config&)>;

// Called with the verb that was typed.
using Choose = std::function<void(const Verb&)>;

operations::Outcome UsageError(const absl::Status& status);

template <typename Arguments>
CLI::App* AddVerb(CLI::App* parent, const char* name, const char* help, const Arguments* arguments,
                  absl::StatusOr<operations::Outcome> (*run)(const Arguments&,
                                                             const config::Config&),
                  const Choose& choose) {
  CLI::App* verb = parent->add_subcommand(name, help);
  verb->callback([arguments, choose, run] {
    choose([arguments, run](const config::Config& config) {
      const absl::StatusOr<operations::Outcome> outcome = run(*arguments, config);
      return outcome.ok() ? *outcome : UsageError(outcome.status());
    });
  });
  return verb;
}

}  // namespace walpost::cli
