// SharedIds - outboxes whose events may have the same ids in the same topic.
// Why: a record does not name its table. A record with a row's id may then be about a row of another
//   table, so it does not show that this row is delivered. Such ids are called shared.
// Rule: both may give the topic, and neither table's ids are of type uuid.
// Thread: a value; reading it blocks.
// Errors: those of SqlConnection. A table that does not exist shares nothing.
// Source: docs/database.md, "Tables with the same ids".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "operations/pipeline_settings.h"
#include "outbox/topic_reach.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

class SharedIds {
 public:
  SharedIds() = default;  // none

  static absl::StatusOr<SharedIds> Read(const std::vector<outbox::TableOptions>& tables,
                                        const std::string& publication,
                                        postgres::SqlConnection* connection);
  static absl::StatusOr<SharedIds> Read(const PipelineSettings& pipeline);

  // Tables by their names, schema.table.
  using Pair = std::pair<std::string, std::string>;

  const std::vector<Pair>& pairs() const { return pairs_; }

  // Whether a record of `topic` with the id of a row of `table` may be about another table's.
  bool In(std::string_view table, std::string_view topic) const;

  // Names both.
  static std::string TextOf(const Pair& pair);

  // Why it is not known which rows of `tables` are missing, and what to do; empty = it is known.
  std::string TextAbout(const std::vector<std::string>& tables) const;

 private:
  struct Table {
    std::string name;
    outbox::TopicReach reach;
  };

  std::vector<Table> tables_;  // those in pairs
  std::vector<Pair> pairs_;
};

inline constexpr char kSharedIdsCure[] =
    "give the ids the type uuid, or each table a topic of its own";

}  // namespace walpost::operations
