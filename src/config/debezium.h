// ReadDebezium - `outboxes[].debezium`: the options of Debezium's Event Router under their own
// names, so that a connector's properties can be pasted.
// Source: Debezium's documentation, "Outbox Event Router"; docs/migrate-from-debezium.md.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "outbox/options.h"

namespace walpost::config {

// Fills `table` in; problems and warnings name the line. `path` is of `node`.
void ReadDebezium(const YAML::Node& node, const std::string& path, Problems* problems,
                  outbox::TableOptions* table);

// The name of an option of the Event Router without `transforms.<alias>.` before it.
std::string_view WithoutTransformPrefix(std::string_view key);

// The options as they would be pasted, those that are not at their default.
std::vector<std::pair<std::string, std::string>> DebeziumPairs(const outbox::TableOptions& table);

// Whether a scalar under `key` has dollar signs of its own, which stand for no variable.
bool IsDebeziumPattern(std::string_view key);

// All of them; for the importer.
const std::vector<std::string>& DebeziumOptionNames();

}  // namespace walpost::config
