#include "outbox/options.h"

#include "outbox/topic_template.h"

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

}  // namespace walpost::outbox
