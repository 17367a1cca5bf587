#include "outbox/options.h"

#include "outbox/topic_rules.h"

namespace walpost::outbox {

std::vector<std::string> MappedColumns(const TableOptions& options) {
  const ColumnMapping& c = options.columns;
  std::vector<std::string> columns;
  for (const ColumnNames* names :
       {&c.id, &c.key, &c.aggregate_type, &c.type, &c.payload, &c.content_type, &c.schema_name,
        &c.headers, &c.occurred_at, &c.traceparent, &c.tracestate, &c.baggage,
        &c.tracingspancontext, &c.topic, &c.partition, &c.timestamp}) {
    columns.insert(columns.end(), names->begin(), names->end());
  }
  for (const auto& [header, column] : options.record_headers) {
    columns.push_back(column);
  }
  if (const auto parsed = TopicTemplate::Parse(options.topic); parsed.ok()) {
    for (const TopicTemplate::Part& part : parsed->parts()) {
      if (part.is_placeholder) {
        columns.push_back(part.text);  // a field's name is no column, mostly, and does no harm
      }
    }
  }
  if (options.debezium) {
    columns.push_back(options.debezium->timestamp);
    for (const Placement& placement : options.debezium->placements) {
      columns.push_back(placement.column);
    }
  }
  return columns;
}

namespace {

TableOptions Walpost() {
  TableOptions options;
  options.topic = kDefaultTopic;
  options.columns.id = {"id"};
  options.columns.key = {"aggregate_id"};
  options.columns.aggregate_type = {"aggregate_type"};
  options.columns.type = {"event_type"};
  options.columns.payload = {"payload"};
  options.columns.content_type = {"content_type"};
  options.columns.schema_name = {"schema_name"};
  options.columns.headers = {"headers"};
  options.columns.occurred_at = {"occurred_at"};
  options.columns.traceparent = {"traceparent"};
  options.columns.tracestate = {"tracestate"};
  options.columns.seq = {"seq"};
  return options;
}

TableOptions Debezium() {
  TableOptions options;
  options.preset = "debezium";
  options.schema = "public";
  options.table = "outbox";
  options.columns.id = {"id"};
  options.columns.key = {"aggregateid"};
  options.columns.aggregate_type = {"aggregatetype"};
  options.columns.type = {"type"};
  options.columns.payload = {"payload"};
  options.topic = "outbox.event.{aggregatetype}";
  // As its Event Router does: a row without key is sent without key, and the type column is never
  // read.
  options.null_key_allowed = true;
  options.type_optional = true;
  return options;
}

}  // namespace

std::optional<TableOptions> PresetOptions(std::string_view preset) {
  if (preset == "walpost") {
    return Walpost();
  }
  if (preset == "debezium") {
    return Debezium();
  }
  return std::nullopt;
}

}  // namespace walpost::outbox
