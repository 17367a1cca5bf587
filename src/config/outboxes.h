// ReadOutboxes - the `outboxes` list: presets, columns, topics, headers, value formats. Empty where
// the list is: whether that is all right depends on `messages`.
#pragma once

#include <yaml-cpp/yaml.h>

#include <utility>
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

// The keys to be shown below `value`.
std::vector<Key> ValueKeys(envelope::EncoderOptions encoder);

// The fields of `columns`.
inline constexpr std::pair<const char*, outbox::ColumnNames outbox::ColumnMapping::*>
    kColumnFields[] = {
        {"id", &outbox::ColumnMapping::id},
        {"key", &outbox::ColumnMapping::key},
        {"aggregate_type", &outbox::ColumnMapping::aggregate_type},
        {"type", &outbox::ColumnMapping::type},
        {"payload", &outbox::ColumnMapping::payload},
        {"content_type", &outbox::ColumnMapping::content_type},
        {"schema_name", &outbox::ColumnMapping::schema_name},
        {"headers", &outbox::ColumnMapping::headers},
        {"occurred_at", &outbox::ColumnMapping::occurred_at},
        {"traceparent", &outbox::ColumnMapping::traceparent},
        {"tracestate", &outbox::ColumnMapping::tracestate},
        {"baggage", &outbox::ColumnMapping::baggage},
        {"tracingspancontext", &outbox::ColumnMapping::tracingspancontext},
        {"topic", &outbox::ColumnMapping::topic},
        {"partition", &outbox::ColumnMapping::partition},
        {"timestamp", &outbox::ColumnMapping::timestamp},
        {"seq", &outbox::ColumnMapping::seq},
};

// ReadMessages - the `messages` map: which logical messages are events, and what becomes of them.
void ReadMessages(MapReader reader, pipeline::MessagesOptions* messages);

}  // namespace walpost::config
