// ConnectorFile - the settings of a Debezium connector by Kafka Connect's names, from either form.
// Errors: kInvalidArgument: what is wrong with the text, never a value.
// Source: Java SE, java.util.Properties.load; Quarkus, "Property expressions".
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace walpost::config {

struct ConnectorFile {
  std::map<std::string, std::string> settings;
  std::map<std::string, std::string> producer;  // the Kafka producer's own
  std::vector<std::string> notes;
  bool is_server = false;  // Debezium Server's
};

absl::StatusOr<ConnectorFile> ReadConnectorFile(const std::string& text);

}  // namespace walpost::config
