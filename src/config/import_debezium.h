// ImportDebezium - walpost.yaml from the configuration of a Debezium connector: the JSON of Kafka
// Connect, plain or with name and config, or Debezium Server's application.properties.
// Why: what cannot be carried over is said, not guessed; the file that comes out loads.
// Errors: kInvalidArgument for a file that is neither, has no Event Router, or gives options that
//   walpost rejects. Secrets never come out: they become ${VARIABLES}.
// Source: docs/migrate-from-debezium.md.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace walpost::config {

struct ImportedConfig {
  std::string yaml;
  std::vector<std::string> notes;  // what was not carried over, what to look at
};

absl::StatusOr<ImportedConfig> ImportDebezium(const std::string& text);

}  // namespace walpost::config
