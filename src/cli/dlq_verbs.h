// AddDlqVerbs - the command line of `walpost dlq`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cli/verb.h"
#include "config/config.h"
#include "operations/deadletters/dlq.h"

namespace walpost::cli {

struct DlqArguments {
  std::string id, position, key, type, topic, reason, since, until;
  std::string event;
  std::string to_topic;
  std::string wait = "30s";
  std::size_t limit = 0;
  bool all = false;
  bool all_undecided = false;
  bool payload = false;
  bool json = false;
  bool dry_run = false;
  bool yes = false;
};

// The pipeline, as verbs about its dead letters and rows need it.
operations::PipelineSettings PipelineSettingsOf(const config::Config& config);

// A duration of the configuration file, meaning how long ago, or RFC 3339.
absl::StatusOr<std::int64_t> TimeOf(const std::string& text);

void AddDlqVerbs(CLI::App* app, DlqArguments* arguments, const Choose& choose);

}  // namespace walpost::cli
