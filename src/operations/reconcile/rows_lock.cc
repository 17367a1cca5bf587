#include "operations/reconcile/rows_lock.h"

#include <algorithm>

#include "base/status.h"
#include "postgres/sqlstate.h"

namespace walpost::operations {
namespace {

using postgres::SqlConnection;

absl::Status Lost(const absl::Status& status) {
  return status.ok() ? status
                     : absl::FailedPreconditionError(
                           "the session that keeps other walposts away has ended, so another one "
                           "may have begun: run this again: " +
                           std::string(status.message()));
}

absl::Status Taken() {
  return absl::FailedPreconditionError(
      "another walpost is sending rows or making a slot just now, or a session has locked "
      "walpost.pipeline by "
      "VACUUM, ANALYZE or the like: run this again when it has ended (pg_locks names it)");
}

}  // namespace

// An autovacuum of the table gives way within deadlock_timeout, a second as a rule.
absl::StatusOr<RowsLock> RowsLock::Take(const postgres::ConnectOptions& source) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(source.conninfo, source.application_name));
  RETURN_IF_ERROR(connection.Execute(
      "SET idle_in_transaction_session_timeout = 0; BEGIN; SET LOCAL lock_timeout = '3s'"));
  const absl::Status locked =
      connection.Execute("LOCK TABLE walpost.pipeline IN SHARE UPDATE EXCLUSIVE MODE");
  if (connection.last_sqlstate() == postgres::sqlstate::kLockNotAvailable) {
    return Taken();
  }
  RETURN_IF_ERROR(locked);
  RETURN_IF_ERROR(connection.Execute("SET LOCAL lock_timeout TO DEFAULT"));
  return RowsLock(std::move(connection));
}

absl::Status RowsLock::RequireFree(SqlConnection* connection) {
  const std::string holders =
      "SELECT virtualtransaction FROM pg_locks WHERE mode = 'ShareUpdateExclusiveLock' AND granted "
      "AND relation = to_regclass('walpost.pipeline') AND database = (SELECT oid FROM pg_database "
      "WHERE datname = current_database())";
  ASSIGN_OR_RETURN(std::vector<postgres::Row> keepers, connection->Query(holders));
  // Any role can take that lock again and again, each time for a moment. A walpost keeps it.
  constexpr int kLooks = 20;
  for (int look = 0; look < kLooks && !keepers.empty(); ++look) {
    RETURN_IF_ERROR(connection->Execute("SELECT pg_sleep(0.05)"));
    ASSIGN_OR_RETURN(const std::vector<postgres::Row> now, connection->Query(holders));
    std::erase_if(keepers, [&now](const postgres::Row& each) {
      return std::find(now.begin(), now.end(), each) == now.end();
    });
  }
  return keepers.empty() ? absl::OkStatus() : Taken();
}

absl::Status RowsLock::Check() { return Lost(connection_.Execute("SELECT")); }

absl::Status RowsLock::EndWith(const std::string& sql,
                               const std::vector<postgres::Cell>& parameters) {
  const auto rows = connection_.Query(sql, parameters);
  absl::Status done = rows.status();
  if (rows.ok() && rows->empty()) {
    done = absl::FailedPreconditionError("walpost.pipeline records another slot by now");
  }
  return Lost(connection_.EndTransaction(done));
}

}  // namespace walpost::operations
