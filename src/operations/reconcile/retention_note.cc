#include "operations/reconcile/retention_note.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/trusted_owner.h"
#include "postgres/failure.h"

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

namespace {

using postgres::QuoteIdentifier;
using postgres::Row;

// What must be walpost's own, where a note is to be believed.
constexpr char kOwnObjects[] =
    "SELECT 'schema ' || quote_ident(nspname), nspowner FROM pg_namespace WHERE nspname = $1 UNION "
    "ALL SELECT c.oid::regclass::text, c.relowner FROM pg_class c JOIN pg_namespace n ON n.oid = "
    "c.relnamespace WHERE n.nspname = $1 AND c.relname IN ('events', 'retention_note') UNION ALL "
    "SELECT p.oid::regprocedure::text, p.proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = "
    "p.pronamespace WHERE n.nspname = $1 AND p.proname = 'maintain'";

// Notes that are there.
struct Notes {
  std::string name;
  std::string owner;
  bool made_by_walpost = false;  // as far as names show
};

absl::StatusOr<std::optional<Notes>> FindNotes(SqlConnection* connection,
                                               const std::string& schema) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> found,
      connection->Query(
          "SELECT c.oid::regclass::text, pg_get_userbyid(c.relowner), c.relkind = 'r' AND EXISTS "
          "(SELECT FROM pg_class e WHERE e.relnamespace = n.oid AND e.relname = 'events') AND "
          "EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proname = 'maintain') "
          "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND "
          "c.relname = 'retention_note'",
          {schema}));
  if (found.empty()) {
    return std::nullopt;
  }
  return Notes{found[0].at(0).value_or(""), found[0].at(1).value_or(""), found[0].at(2) == "t"};
}

std::string Warning(const Notes& notes, std::string_view why) {
  return absl::StrFormat(
      "what %s says, a relation of role %s, does not count, so more rows are compared: %s",
      notes.name, notes.owner, why);
}

// Empty = nothing speaks against these notes.
absl::StatusOr<std::string> WhyNot(SqlConnection* connection, const std::string& schema,
                                   const Notes& notes) {
  if (!notes.made_by_walpost) {
    return std::string("walpost did not make it");
  }
  ASSIGN_OR_RETURN(const auto foreign, FindForeign(connection, kOwnObjects, {schema}));
  if (foreign) {
    return absl::StrFormat("%s belongs to role %s, which is not trusted (docs/security.md)",
                           foreign->what, foreign->owner);
  }
  ASSIGN_OR_RETURN(const std::vector<Grant> grants, FindWriters(connection, {schema}));
  for (const Grant& grant : grants) {
    if (grant.what == notes.name || grant.what == kEveryTable) {
      return absl::StrFormat(
          "role %s, which is not trusted (docs/security.md), may write to it: %s", grant.role,
          grant.cure);
    }
  }
  return std::string();
}

// Its writer had ended before all that ran in `snapshot`: see outbox.age_of.
std::string OlderThanAllRunningSql(const std::string& snapshot) {
  return absl::StrFormat(
      "(age(t.xmin) > (SELECT CASE WHEN pg_snapshot_xmax(pg_current_snapshot())::text::bigint - "
      "oldest::text::bigint < 2000000000 THEN age(oldest::xid) ELSE 2147483647 END FROM "
      "pg_snapshot_xmin(%s) AS oldest))",
      postgres::QuoteLiteral(snapshot));
}

// As outbox.maintain decides it: a row's tx may be that of another cluster.
std::string SettledSql(const std::string& snapshot) {
  return absl::StrFormat("(t.xmin = t.tx::xid AND pg_visible_in_snapshot(t.tx, %s) OR %s)",
                         postgres::QuoteLiteral(snapshot), OlderThanAllRunningSql(snapshot));
}

}  // namespace

absl::StatusOr<RetentionNote> FindRetentionNote(SqlConnection* connection,
                                                const outbox::TableOptions& table, base::Lsn end) {
  const std::string sql_name = QuoteIdentifier(table.schema) + ".retention_note";
  RetentionNote note;
  std::optional<Notes> notes;
  for (const bool locked : {false, true}) {
    // A lock needs a right that nobody may have on what others own; and it is looked at again with
    // it.
    if (locked) {
      RETURN_IF_ERROR(connection->Execute(
          absl::StrFormat("LOCK TABLE ONLY %s IN ACCESS SHARE MODE", sql_name)));
    }
    ASSIGN_OR_RETURN(notes, FindNotes(connection, table.schema));
    if (!notes) {
      return note;
    }
    ASSIGN_OR_RETURN(const std::string why, WhyNot(connection, table.schema, *notes));
    if (!why.empty()) {
      note.warning = Warning(*notes, why);
      return note;
    }
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> found,
      // A dump brings those of another cluster along.
      connection->Query(
          absl::StrFormat("SELECT snapshot::text, pg_snapshot_xmax(snapshot) > "
                          "pg_snapshot_xmax(pg_current_snapshot()) FROM ONLY %s WHERE lsn <= "
                          "$1::pg_lsn AND system_identifier = (SELECT system_identifier FROM "
                          "pg_control_system()) ORDER BY lsn DESC LIMIT 1",
                          sql_name),
          {end.ToString()}));
  if (!found.empty() && found[0].at(1) == "t") {
    note.warning = Warning(*notes, "its newest note is about transactions that have not begun");
  } else if (!found.empty()) {
    note.settled = SettledSql(found[0].at(0).value_or(""));
  }
  return note;
}

absl::Status KeepRetentionAway(SqlConnection* connection, const outbox::TableOptions& table) {
  ASSIGN_OR_RETURN(const std::optional<Notes> notes, FindNotes(connection, table.schema));
  if (!notes || !notes->made_by_walpost) {
    return absl::OkStatus();
  }
  // It conflicts with what outbox.maintain takes first, and with nothing else. Whoever owns the
  // table: a lock believes nothing and runs nothing.
  const absl::Status locked = connection->Execute(absl::StrFormat(
      "LOCK TABLE ONLY %s.retention_note IN ROW EXCLUSIVE MODE", QuoteIdentifier(table.schema)));
  if (connection->last_sqlstate() == postgres::sqlstate::kLockNotAvailable) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "%s.maintain, or a transaction that has called it, has not ended in time, and may still "
        "delete rows that are to be sent; see sql/runbook/long_transactions.sql, then run this "
        "again",
        table.schema));
  }
  return locked;
}

}  // namespace walpost::operations
