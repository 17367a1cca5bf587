// TableOptions - how the columns of one outbox table become an event. Plain data, filled in by
// config. Presets `walpost` and `debezium` are functions that return such a struct.
// Thread: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outbox/topic_rules.h"

namespace walpost::outbox {

// DebeziumOptions - the settings of Debezium's Event Router other than the columns it reads. Plain
// data, filled in by config.
// Thread: values.
// Source: Debezium's documentation, "Outbox Event Router".
struct Placement {
  enum class Where { kHeader, kEnvelope, kPartition };

  std::string column;
  Where where = Where::kHeader;
  std::string alias;

  friend bool operator==(const Placement&, const Placement&) = default;
};

struct DebeziumOptions {
  std::string topic_regex = "(?<routedByValue>.*)";
  std::string topic_replacement = "outbox.event.${routedByValue}";
  std::string timestamp;  // column of the record's time; empty = when the transaction committed
  std::vector<Placement> placements;
  bool missing_ignored = false;  // a placed column that the table does not have is left out
  bool expand_json = false;
  bool keep_json_nulls = false;  // members that are null, when expanded
  bool keep_empty_arrays = false;
  bool tombstone_on_empty = false;

  friend bool operator==(const DebeziumOptions&, const DebeziumOptions&) = default;
};

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

// Presets - the mapping that `preset: walpost` and `preset: debezium` stand for.

// Of rows of preset walpost and of messages: bounded by its text, as that of Debezium's Event
// Router.
inline constexpr char kDefaultTopic[] = "outbox.event.{aggregate_type}";

// nullopt for a name that is no preset. kPresetNames lists those that are.
std::optional<TableOptions> PresetOptions(std::string_view preset);

inline constexpr std::string_view kPresetNames[] = {"walpost", "debezium"};

}  // namespace walpost::outbox
