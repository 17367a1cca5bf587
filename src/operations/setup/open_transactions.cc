#include "operations/setup/open_transactions.h"

#include <poll.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SqlConnection;
using std::chrono::steady_clock;

constexpr int kLookAgainMs = 100;

// By the transaction: who runs it. Who writes holds this lock on the root, and one that has ended was
// visible before it gave it up. Any role may read these columns.
absl::StatusOr<std::map<std::string, std::string>> OpenTransactions(
    SqlConnection* connection, const PipelineSettings& pipeline) {
  std::vector<std::string> tables;
  for (const envelope::OutboxOptions& outbox : pipeline.outboxes) {
    tables.push_back(QuoteIdentifier(outbox.table.schema) + "." +
                     QuoteIdentifier(outbox.table.table));
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(absl::StrFormat(
          "WITH RECURSIVE tree (oid) AS ("
          "SELECT to_regclass(name)::oid FROM unnest(%s::text[]) AS names (name) "
          "UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid) "
          "SELECT DISTINCT l.virtualtransaction, "
          "coalesce('process ' || l.pid || ' of ' || a.usename, "
          "(SELECT 'prepared as ' || min(p.gid) FROM pg_prepared_xacts p "
          "JOIN pg_locks own ON own.transactionid = p.transaction AND own.pid IS NULL "
          "WHERE own.virtualtransaction = l.virtualtransaction)) "
          "FROM tree JOIN pg_locks l ON l.relation = tree.oid "
          "JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() "
          "LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
          "WHERE l.mode = 'RowExclusiveLock' AND l.granted",
          postgres::ArrayLiteral(tables))));
  std::map<std::string, std::string> open;
  for (const Row& row : rows) {
    open.emplace(row.at(0).value_or(""), row.at(1).value_or(""));
  }
  return open;
}

absl::Status StillOpen(const std::map<std::string, std::string>& open) {
  return absl::DeadlineExceededError(absl::StrFormat(
      "%s was open when this began and has written to an outbox, perhaps rows that the stream left "
      "out; wait until it has ended, or end it, and run this again",
      absl::StrJoin(open, ", ", [](std::string* text, const auto& each) {
        absl::StrAppendFormat(text, "the transaction of %s", each.second);
      })));
}

}  // namespace

absl::Status AwaitOpenTransactions(const PipelineSettings& pipeline,
                                   std::chrono::milliseconds patience) {
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(pipeline.source.conninfo, pipeline.source.application_name));
  const auto deadline = steady_clock::now() + patience;
  ASSIGN_OR_RETURN(auto open, OpenTransactions(&connection, pipeline));
  while (!open.empty()) {
    if (steady_clock::now() >= deadline) {
      return StillOpen(open);
    }
    poll(nullptr, 0, kLookAgainMs);
    ASSIGN_OR_RETURN(const auto now, OpenTransactions(&connection, pipeline));
    std::erase_if(open, [&now](const auto& each) { return !now.contains(each.first); });
  }
  return absl::OkStatus();
}

}  // namespace walpost::operations
