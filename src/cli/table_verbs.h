// AddTableVerbs - the command line of `walpost replay` and `walpost audit`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "operations/outcome.h"

namespace walpost::cli {

struct TableArguments {
  std::string from, to, key, type, table;
  std::vector<std::string> ids;
  std::string to_topic;
  std::string standby;
  std::string wait = "60s";
  std::string temp_dir;
  std::string report;
  std::uint64_t rate = 0;
  bool all = false;
  bool missing = false;
  bool in_place = false;
  bool dry_run = false;
  bool skip_undeliverable = false;
  bool send_unproven = false;
  bool json = false;
};

void AddTableVerbs(CLI::App* app, TableArguments* arguments, const Choose& choose);

// A line on a terminal that changes; nothing where there is none.
operations::OnProgress ProgressOnTerminal();

void WarnOnStderr(const std::string& line);

inline constexpr const char* kSkipHelp =
    "Leave out rows that can be no records, or that their topics do not take, and name them; "
    "without it they end it";
inline constexpr const char* kUnprovenHelp =
    "Also send rows of which it is not known whether Kafka has them; without it the verb rejects "
    "them";
inline constexpr const char* kTempDirHelp = "Folder for temporary files; else $TMPDIR, or /tmp";

}  // namespace walpost::cli
