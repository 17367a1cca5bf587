// ReadOutboxes - the `outboxes` list: presets, columns, topics, value formats.
#pragma once

#include <yaml-cpp/yaml.h>

#include <vector>

#include "config/reader.h"
#include "pipeline/options.h"

namespace walpost::config {

// Absent: one outbox.events of preset walpost.
std::vector<pipeline::OutboxOptions> ReadOutboxes(const YAML::Node& list, Problems* problems);

}  // namespace walpost::config
