// AddTailVerb - the command line of `walpost tail`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/verb.h"

namespace walpost::cli {

struct TailArguments {
  std::string table;
  std::string key;
  std::uint64_t limit = 0;
  bool from_now = false;
  bool payload = false;
  bool json = false;
};

void AddTailVerb(CLI::App* app, TailArguments* arguments, const Choose& choose);

}  // namespace walpost::cli
