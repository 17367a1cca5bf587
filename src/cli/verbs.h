// AddVerb - a verb of the command line that runs with the configuration.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/config.h"
#include "operations/deadletters/dlq.h"
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

// AddTableVerbs - the command line of `walpost replay` and `walpost audit`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
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

// AddStatusVerbs - the command line of `walpost status` and `walpost healthcheck`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
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

// AddTailVerb - the command line of `walpost tail`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
struct TailArguments {
  std::string table;
  std::string key;
  std::uint64_t limit = 0;
  bool from_now = false;
  bool payload = false;
  bool json = false;
};

void AddTailVerb(CLI::App* app, TailArguments* arguments, const Choose& choose);

// AddDlqVerbs - the command line of `walpost dlq`.
// Thread: main, before the verb runs.   Lifetime: `arguments` until the verb has run.
// Errors: the verb reports wrong values: 64, with what is allowed.
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
