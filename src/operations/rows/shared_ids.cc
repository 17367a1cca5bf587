#include "operations/rows/shared_ids.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/rows/table_columns.h"

namespace walpost::operations {

using postgres::SqlConnection;

absl::StatusOr<SharedIds> SharedIds::Read(const std::vector<outbox::TableOptions>& tables,
                                          const std::string& publication,
                                          SqlConnection* connection) {
  SharedIds shared;
  if (tables.size() < 2) {
    return shared;
  }
  for (const outbox::TableOptions& table : tables) {
    const auto columns = TableColumns::Read(connection, publication, table);
    if (absl::IsNotFound(columns.status())) {
      continue;
    }
    RETURN_IF_ERROR(columns.status());
    if (columns->Has(columns->Find(table.columns.id), kUuidType)) {
      continue;
    }
    Table here{absl::StrFormat("%s.%s", table.schema, table.table), outbox::TopicReach(table)};
    for (const Table& other : shared.tables_) {
      if (here.reach.Meets(other.reach)) {
        shared.pairs_.emplace_back(other.name, here.name);
      }
    }
    shared.tables_.push_back(std::move(here));
  }
  return shared;
}

absl::StatusOr<SharedIds> SharedIds::Read(const PipelineSettings& pipeline) {
  std::vector<outbox::TableOptions> tables;
  for (const envelope::OutboxOptions& outbox : pipeline.outboxes) {
    tables.push_back(outbox.table);
  }
  if (tables.size() < 2) {
    return SharedIds();
  }
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(pipeline.source.conninfo, pipeline.source.application_name));
  return Read(tables, pipeline.source.publication, &connection);
}

bool SharedIds::In(std::string_view table, std::string_view topic) const {
  const auto named = [&](const Table& each) { return each.name == table; };
  return std::any_of(tables_.begin(), tables_.end(), named) &&
         std::any_of(tables_.begin(), tables_.end(),
                     [&](const Table& other) { return !named(other) && other.reach.Holds(topic); });
}

std::string SharedIds::TextOf(const Pair& pair) {
  return absl::StrFormat(
      "%s and %s may have the same ids in the same topic, and records do not name their table",
      pair.first, pair.second);
}

std::string SharedIds::TextAbout(const std::vector<std::string>& tables) const {
  const auto asked = [&](const std::string& table) {
    return std::find(tables.begin(), tables.end(), table) != tables.end();
  };
  for (const Pair& pair : pairs_) {
    if (asked(pair.first) || asked(pair.second)) {
      return absl::StrFormat(
          "%s, so it is not known which of their rows Kafka holds: --send-unproven sends all rows "
          "of "
          "which it is not known, so some come again; to end this, %s",
          TextOf(pair), kSharedIdsCure);
    }
  }
  return "";
}

}  // namespace walpost::operations
