// ReadOutboxes - the `outboxes` list: presets, columns, topics, headers, value formats. Empty where
// the list is: whether that is all right depends on `messages`.
#pragma once

#include <yaml-cpp/yaml.h>

#include <vector>

#include "config/reader.h"
#include "pipeline/options.h"

namespace walpost::config {

// Absent: one outbox.events of preset walpost.
std::vector<envelope::OutboxOptions> ReadOutboxes(const YAML::Node& list, Problems* problems);

// `topics.allowed`: names and patterns.
void ReadAllowed(MapReader* topics, outbox::TopicOptions* options);

// What `value` maps say, wherever events come from. Keeps in `encoder` what is not said.
void ReadValue(MapReader reader, envelope::EncoderOptions* encoder);

// `constant_headers`: header name to value.
void ReadConstantHeaders(MapReader reader, const YAML::Node& map,
                         envelope::EncoderOptions* encoder);

}  // namespace walpost::config
