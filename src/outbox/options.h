// TableOptions - how the columns of one outbox table become an event. Plain data, filled in by
// config. Presets `walpost` and `debezium` are functions that return such a struct (presets.h).
// Thread: values.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outbox/debezium_options.h"
#include "outbox/topic_rules.h"

namespace walpost::outbox {

// Candidates for one field: the first name present in the Relation is used. Empty = the field is
// not mapped.
using ColumnNames = std::vector<std::string>;

struct ColumnMapping {
  ColumnNames id;
  ColumnNames key;
  ColumnNames aggregate_type;
  ColumnNames type;
  ColumnNames payload;
  ColumnNames content_type;
  ColumnNames schema_name;
  ColumnNames headers;  // json or jsonb object of strings
  ColumnNames occurred_at;
  ColumnNames traceparent;
  ColumnNames tracestate;
  ColumnNames baggage;
  ColumnNames tracingspancontext;  // its traceparent counts when there is no other
  ColumnNames topic;               // per-row topic, overrides the template when not NULL
  ColumnNames partition;           // integer
  ColumnNames timestamp;           // timestamptz, the record's when not NULL
  ColumnNames seq;
};

struct TableOptions {
  std::string schema = "outbox";
  std::string table = "events";
  std::string preset = "walpost";
  ColumnMapping columns;
  // Fields of `columns` that the user named: a table without their column does not fit.
  std::vector<std::string> fields_named = {};
  std::string topic =
      "{aggregate_type}";  // placeholders are mapped field names or, else, column names
  TopicOptions topics;
  std::vector<std::pair<std::string, std::string>> record_headers;  // header name, column
  bool null_key_allowed =
      false;                   // else a NULL key, aggregate type or type is an undeliverable event
  bool type_optional = false;  // the type column may be missing from the table
  std::optional<DebeziumOptions> debezium;  // then `topic` is not used
};

// Every column that anything of an event may be read from. A table need not have them all.
std::vector<std::string> MappedColumns(const TableOptions& options);

}  // namespace walpost::outbox
