// DebeziumOptions - the settings of Debezium's Event Router other than the columns it reads. Plain
// data, filled in by config.
// Thread: values.
// Source: Debezium's documentation, "Outbox Event Router".
#pragma once

#include <string>
#include <vector>

namespace walpost::outbox {

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

}  // namespace walpost::outbox
