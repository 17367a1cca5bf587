// AddStatusVerbs - the command line of `walpost status` and `walpost healthcheck`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/verb.h"

namespace walpost::cli {

struct StatusArguments {
  std::string url;
  std::string timeout = "3s";
  std::string wait_warning = "2min", wait_critical = "5min";
  std::string lag_warning = "2GB", lag_critical = "10GB";
  bool watch = false;
  bool json = false;
  bool exit_code = false;
  bool ready = false;
};

void AddStatusVerbs(CLI::App* app, StatusArguments* arguments, const Choose& choose);

}  // namespace walpost::cli
