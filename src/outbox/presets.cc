#include "outbox/presets.h"

namespace walpost::outbox {
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
