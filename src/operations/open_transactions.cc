#include "operations/open_transactions.h"

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

using postgres::Row;
using postgres::SqlConnection;
using std::chrono::steady_clock;

constexpr int kStepMs = 100;

// By its id: who runs it. A transaction that ended became visible before it gave up this lock. Any role
// may read these columns.
absl::StatusOr<std::map<std::string, std::string>> OpenTransactions(SqlConnection* connection) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(
          "SELECT l.transactionid::text, coalesce('process ' || l.pid || ' of ' || a.usename, "
          "'prepared as ' || p.gid) FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
          "LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid "
          "WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted "
          "AND l.pid IS DISTINCT FROM pg_backend_pid() "
          "AND coalesce(a.datname, p.database) = current_database()"));
  std::map<std::string, std::string> open;
  for (const Row& row : rows) {
    open.emplace(row.at(0).value_or(""), row.at(1).value_or(""));
  }
  return open;
}

absl::Status StillOpen(const std::map<std::string, std::string>& open) {
  return absl::DeadlineExceededError(absl::StrFormat(
      "%s: open since before this began, and may have written rows that the stream left out; wait "
      "until they have ended, or end them, and run this again",
      absl::StrJoin(open, ", ", [](std::string* text, const auto& each) {
        absl::StrAppendFormat(text, "transaction %s (%s)", each.first, each.second);
      })));
}

}  // namespace

absl::Status AwaitOpenTransactions(const postgres::ConnectOptions& source,
                                   std::chrono::milliseconds patience) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(source.conninfo, source.application_name));
  const auto deadline = steady_clock::now() + patience;
  ASSIGN_OR_RETURN(auto open, OpenTransactions(&connection));
  while (!open.empty()) {
    if (steady_clock::now() >= deadline) {
      return StillOpen(open);
    }
    poll(nullptr, 0, kStepMs);
    ASSIGN_OR_RETURN(const auto now, OpenTransactions(&connection));
    std::erase_if(open, [&now](const auto& each) { return !now.contains(each.first); });
  }
  return absl::OkStatus();
}

}  // namespace walpost::operations
