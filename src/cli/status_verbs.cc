#include "cli/status_verbs.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "config/units.h"
#include "operations/status/status.h"

namespace walpost::cli {
namespace {

using operations::Outcome;
using operations::StatusOptions;

constexpr int kRedrawMs = 1000;

absl::StatusOr<StatusOptions> OptionsOf(const StatusArguments& arguments,
                                        const config::Config& config) {
  StatusOptions options;
  options.listen = config.run.http.listen;
  options.url = arguments.url;
  options.token = config.run.http.token;
  options.name = config.run.name;
  options.source = config.run.source;
  options.json = arguments.json;
  options.exit_code = arguments.exit_code;
  ASSIGN_OR_RETURN(options.timeout, config::ParseDuration(arguments.timeout));
  operations::Thresholds& thresholds = options.thresholds;
  ASSIGN_OR_RETURN(thresholds.wait_warning, config::ParseDuration(arguments.wait_warning));
  ASSIGN_OR_RETURN(thresholds.wait_critical, config::ParseDuration(arguments.wait_critical));
  ASSIGN_OR_RETURN(thresholds.lag_warning, config::ParseSize(arguments.lag_warning));
  ASSIGN_OR_RETURN(thresholds.lag_critical, config::ParseSize(arguments.lag_critical));
  return options;
}

// Ctrl-C ends the process, as any other: there is nothing to be put right.
[[noreturn]] void Watch(const StatusOptions& options) {
  constexpr char kHomeAndClear[] = "\x1b[H\x1b[J";
  for (;;) {
    const Outcome outcome = operations::ShowStatus(options);
    std::printf("%s%s%s%s", kHomeAndClear, outcome.Output().c_str(), outcome.Error().c_str(),
                outcome.error.empty() ? "" : "\n");
    std::fflush(stdout);
    poll(nullptr, 0, kRedrawMs);
  }
}

absl::StatusOr<Outcome> Status(const StatusArguments& arguments, const config::Config& config) {
  ASSIGN_OR_RETURN(const StatusOptions options, OptionsOf(arguments, config));
  if (!arguments.watch) {
    return operations::ShowStatus(options);
  }
  if (options.json || options.exit_code) {
    return absl::InvalidArgumentError("--watch goes with neither --json nor --exit-code");
  }
  if (isatty(STDOUT_FILENO) == 0) {
    return absl::InvalidArgumentError("--watch draws on a terminal, and stdout is none");
  }
  Watch(options);
}

absl::StatusOr<Outcome> HealthCheck(const StatusArguments& arguments,
                                    const config::Config& config) {
  ASSIGN_OR_RETURN(const StatusOptions options, OptionsOf(arguments, config));
  return operations::HealthCheck(options, arguments.ready);
}

}  // namespace

void AddStatusVerbs(CLI::App* app, StatusArguments* arguments, const Choose& choose) {
  const auto add = [&](const char* name, const char* help, auto* run) {
    CLI::App* verb = AddVerb(app, name, help, arguments, run, choose);
    verb->add_option("--url", arguments->url, "Ask there, instead of at http.listen");
    verb->add_option("--timeout", arguments->timeout, "How long to wait for the answer")
        ->capture_default_str();
    return verb;
  };
  CLI::App* status =
      add("status", "What the running walpost does, and what there is to do", Status);
  status->add_flag("--watch", arguments->watch, "Again each second, until Ctrl-C");
  status->add_flag("--json", arguments->json, "As JSON: /status as it is");
  status->add_flag("--exit-code", arguments->exit_code,
                   "End as a monitoring plugin: 0 ok, 1 warning, 2 critical, 3 unknown");
  const auto threshold = [&](const char* name, std::string* value, const char* help) {
    status->add_option(name, *value, help)->capture_default_str();
  };
  threshold("--wait-warning", &arguments->wait_warning,
            "Warning when an event, or a state in which nothing streams, is as old");
  threshold("--wait-critical", &arguments->wait_critical, "Critical");
  threshold("--lag-warning", &arguments->lag_warning, "Warning when so much WAL is unconfirmed");
  threshold("--lag-critical", &arguments->lag_critical, "Critical");
  add("healthcheck", "End with 0 when the running walpost is alive, else with 1", HealthCheck)
      ->add_flag("--ready", arguments->ready, "When it is ready: neither starting nor halted");
}

}  // namespace walpost::cli
