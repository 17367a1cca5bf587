// AddTailVerb - the command line of `walpost tail`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/dlq_verbs.h"

namespace walpost::cli {

struct TailArguments {
  std::string table;
  std::string key;
  std::uint64_t limit = 0;
  bool from_now = false;
  bool payload = false;
  bool json = false;
};

// `choose` is called with the verb that was typed.
void AddTailVerb(CLI::App* app, TailArguments* arguments,
                 const std::function<void(const DlqVerb&)>& choose);

}  // namespace walpost::cli
