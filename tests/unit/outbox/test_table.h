// TestTable - a table with one row, by column names: its Relation and its values.
// Lifetime: values() lives until the next Set.
#pragma once

#include <glog/logging.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "outbox/column_value.h"
#include "outbox/table_mapper.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

class TestTable {
 public:
  TestTable(std::string schema, std::string name,
            std::initializer_list<std::pair<const char*, std::uint32_t>> columns) {
    relation_.id = pgoutput::RelationId{16400};
    relation_.schema = std::move(schema);
    relation_.name = std::move(name);
    for (const auto& [column, type] : columns) {
      Add(column, type);
    }
  }

  // New columns are NULL.
  TestTable& Add(const std::string& column, std::uint32_t type) {
    relation_.columns.push_back({column, type, -1, false});
    cells_.emplace_back();
    return *this;
  }

  TestTable& Text(std::string_view column, std::string_view text) {
    return Set(column, pgoutput::Value::Kind::kText, text);
  }

  TestTable& Binary(std::string_view column, std::string_view bytes) {
    return Set(column, pgoutput::Value::Kind::kBinary, bytes);
  }

  TestTable& Null(std::string_view column) { return Set(column, pgoutput::Value::Kind::kNull, ""); }

  TestTable& Retype(std::string_view column, std::uint32_t type) {
    relation_.columns[IndexOf(column)].type_oid = type;
    return *this;
  }

  TestTable& Rename(std::string_view column, std::string name) {
    relation_.columns[IndexOf(column)].name = std::move(name);
    return *this;
  }

  TestTable& Drop(std::string_view column) {
    const auto index = static_cast<std::ptrdiff_t>(IndexOf(column));
    relation_.columns.erase(relation_.columns.begin() + index);
    cells_.erase(cells_.begin() + index);
    return *this;
  }

  TestTable& Swap(std::string_view one, std::string_view other) {
    const std::size_t i = IndexOf(one);
    const std::size_t j = IndexOf(other);
    std::swap(relation_.columns[i], relation_.columns[j]);
    std::swap(cells_[i], cells_[j]);
    return *this;
  }

  const pgoutput::Relation& relation() const { return relation_; }

  const std::vector<pgoutput::Value>& values() {
    values_.clear();
    for (const auto& [kind, bytes] : cells_) {
      values_.push_back({kind, bytes});
    }
    return values_;
  }

 private:
  std::size_t IndexOf(std::string_view column) const {
    for (std::size_t i = 0; i < relation_.columns.size(); ++i) {
      if (relation_.columns[i].name == column) {
        return i;
      }
    }
    LOG(FATAL) << "no column " << column;
  }

  TestTable& Set(std::string_view column, pgoutput::Value::Kind kind, std::string_view bytes) {
    cells_[IndexOf(column)] = {kind, std::string(bytes)};
    return *this;
  }

  pgoutput::Relation relation_;
  std::vector<std::pair<pgoutput::Value::Kind, std::string>> cells_;
  std::vector<pgoutput::Value> values_;
};

// outbox.events as `walpost init` creates it (sql/), with a row whose mandatory columns are set.
inline TestTable WalpostTable() {
  constexpr std::uint32_t kXid8 = 5069;
  TestTable table("outbox", "events",
                  {{"id", type_oid::kUuid},
                   {"seq", type_oid::kInt8},
                   {"tx", kXid8},
                   {"aggregate_type", type_oid::kText},
                   {"aggregate_id", type_oid::kText},
                   {"event_type", type_oid::kText},
                   {"payload", type_oid::kBytea},
                   {"content_type", type_oid::kText},
                   {"schema_name", type_oid::kText},
                   {"headers", type_oid::kJsonb},
                   {"traceparent", type_oid::kText},
                   {"tracestate", type_oid::kText},
                   {"occurred_at", type_oid::kTimestamptz},
                   {"created_at", type_oid::kTimestamptz}});
  table.Text("id", "3f2504e0-4f89-11d3-9a0c-0305e82c3301").Text("seq", "1").Text("tx", "700");
  table.Text("aggregate_type", "order").Text("aggregate_id", "42").Text("event_type", "Placed");
  return table.Text("payload", "\\x00ff").Text("created_at", "2024-02-29 12:00:00+00");
}

}  // namespace walpost::outbox
