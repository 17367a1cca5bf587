// Config - walpost.yaml as the modules' option structs.
// Why: every module keeps its own options; this one only reads, checks and explains.
// Errors: kInvalidArgument with `file:line:column: path: what is wrong; did you mean ...?`, all
//   problems of a file at once.
// Source: docs/configuration.md.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "observe/log.h"
#include "runtime/options.h"

namespace walpost::config {

struct Config {
  runtime::RunOptions run;  // also what the other verbs take their connections and names from
  observe::Severity log_level = observe::Severity::kInfo;
  observe::LogFormat log_format = observe::LogFormat::kText;
  bool require_encryption = false;    // looked at when it is read
  std::vector<std::string> warnings;  // what is understood and has no effect
  // What ${file:...} brought: secrets, whatever they stand at.
  std::vector<std::string> from_files;
};

struct LoadOptions {
  std::string file = "/etc/walpost/walpost.yaml";
  std::vector<std::string> sets;  // "path.to.key=YAML", applied over the file in order
};

absl::StatusOr<Config> Load(const LoadOptions& options);

// For tests and for `config validate -`: `file` is used in messages only.
absl::StatusOr<Config> Parse(const std::string& yaml, const std::string& file,
                             const std::vector<std::string>& sets);

// The effective configuration as YAML, defaults included; secrets as ***, and so all that came from
// files, but where it is only compared.
std::string Show(const Config& config);
std::string ShowToCompare(const Config& config);

// The keys that differ and that a running walpost cannot take: all but log.level, source.conninfo,
// sink.kafka, schema_registry, http.token and security.
std::vector<std::string> KeysThatNeedRestart(const Config& before, const Config& now);

// `before` with what a running walpost takes of `now`.
Config InForce(const Config& before, const Config& now);

}  // namespace walpost::config
