#include "postgres/slots.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "postgres/connection.h"
#include "postgres/failure.h"
#include "postgres/preflight.h"
#include "postgres/replication_stream.h"
#include "postgres/server_watch.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

constexpr auto kAfterCancel = std::chrono::seconds(5);
constexpr int kOptionListSince = 150000;
constexpr int kFailoverSince = 170000;
// Of a slot's snapshot: xmax may lie before xmin when transactions were rolled back while the slot
// was made. What is below xmin is seen all the same, but the text could not be read back.
constexpr char kSnapshot[] =
    "SELECT concat_ws(':', pg_catalog.pg_snapshot_xmin(s), "
    "GREATEST(pg_catalog.pg_snapshot_xmin(s), pg_catalog.pg_snapshot_xmax(s)), "
    "(SELECT coalesce(string_agg(x::text, ',' ORDER BY x), '') "
    "FROM pg_catalog.pg_snapshot_xip(s) AS x)) FROM pg_catalog.pg_current_snapshot() AS s";

struct CancelDeleter {
  void operator()(PGcancel* cancel) const { PQfreeCancel(cancel); }
};

base::Lsn LsnOf(const Cell& cell) {
  const auto lsn = base::Lsn::Parse(cell.value_or(""));
  return lsn.ok() ? *lsn : base::Lsn();
}

std::optional<std::int64_t> NumberOf(const Cell& cell) {
  std::int64_t number = 0;
  const std::string text = cell.value_or("");
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() ? std::optional(number)
                                                                   : std::nullopt;
}

std::string SlotQuery(int version) {
  const char* const newer = version >= kFailoverSince
                                ? "s.inactive_since::text, s.failover, s.synced"
                                : "NULL::text, false, false";
  // On a standby the position replayed is what there is.
  return absl::StrFormat(
      "SELECT s.slot_name, s.plugin, s.slot_type, s.database, s.temporary, s.active, s.active_pid, "
      "s.restart_lsn, s.confirmed_flush_lsn, s.wal_status, s.safe_wal_size, "
      "pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() "
      "ELSE pg_current_wal_lsn() END, s.restart_lsn)::bigint, %s, %s "
      "FROM pg_catalog.pg_replication_slots s",
      InvalidationReasonColumn(version), newer);
}

SlotInfo SlotOf(const Row& row) {
  SlotInfo slot;
  slot.name = row[0].value_or("");
  slot.plugin = row[1].value_or("");
  slot.type = row[2].value_or("");
  slot.database = row[3].value_or("");
  slot.temporary = row[4] == "t";
  slot.active = row[5] == "t";
  slot.active_pid = NumberOf(row[6]).value_or(0);
  slot.restart_lsn = LsnOf(row[7]);
  slot.confirmed_flush_lsn = LsnOf(row[8]);
  slot.wal_status = row[9].value_or("");
  slot.safe_wal_size = NumberOf(row[10]);
  slot.retained_bytes = NumberOf(row[11]);
  slot.invalidation_reason = row[12].value_or("");
  slot.inactive_since = row[13].value_or("");
  slot.failover = row[14] == "t";
  slot.synced = row[15] == "t";
  return slot;
}

// Who holds up the creation: the walsender waits for one transaction after the other.
std::string BlockersOf(const CreateSlotOptions& options, int pid) {
  auto watcher = SqlConnection::Connect(options.conninfo, options.application_name);
  if (!watcher.ok()) {
    return "who is not known: " + std::string(watcher.status().message());
  }
  const auto rows = watcher->Query(
      "SELECT format('PID %s (%s, %s, transaction open for %s)', a.pid, "
      "coalesce(a.usename::text, '?'), coalesce(nullif(a.application_name, ''), '?'), "
      "date_trunc('second', now() - a.xact_start)) FROM pg_catalog.pg_stat_activity a "
      "WHERE a.pid = ANY (pg_blocking_pids($1::int)) "
      "UNION ALL SELECT format('prepared transaction %s', quote_literal(gid)) "
      "FROM pg_catalog.pg_prepared_xacts WHERE 0 = ANY (pg_blocking_pids($1::int))",
      {std::to_string(pid)});
  std::string blockers;
  if (rows.ok()) {
    for (const Row& row : *rows) {
      absl::StrAppend(&blockers, blockers.empty() ? "" : ", ", row[0].value_or("?"));
    }
  }
  return blockers.empty() ? "none is visible to this role" : blockers;
}

// Waits until the server has given up, so that the half-made slot is gone when we return.
void Cancel(Connection* connection) {
  const std::unique_ptr<PGcancel, CancelDeleter> cancel(PQgetCancel(connection->get()));
  char message[256];
  if (cancel == nullptr || PQcancel(cancel.get(), message, sizeof(message)) == 0) {
    return;
  }
  connection->AwaitIdle(std::chrono::steady_clock::now() + kAfterCancel);
}

bool IsSlotName(const std::string& name) {
  constexpr std::size_t kLongest = 63;
  return !name.empty() && name.size() <= kLongest &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

absl::Status CreateFailure(const CreateSlotOptions& options, const ServerError& error,
                           const Endpoint& endpoint) {
  const std::string what =
      absl::StrFormat("creating slot \"%s\" on %s", options.slot, endpoint.ToString());
  const absl::Status status = SqlStatus(what, error);
  const std::string text(status.message());
  if (error.sqlstate == sqlstate::kDuplicateObject) {
    return absl::AlreadyExistsError(text);
  }
  if (error.sqlstate == sqlstate::kObjectNotInPrerequisiteState) {
    return absl::FailedPreconditionError(
        text + "; wal_level must be logical: ALTER SYSTEM SET wal_level = logical, then restart");
  }
  if (error.sqlstate == sqlstate::kConfigurationLimitExceeded) {
    return absl::FailedPreconditionError(
        text +
        (options.drop_old
             ? "; the new slot is made before the old one is dropped: raise "
               "max_replication_slots and restart, drop a slot that nobody uses, or "
               "`walpost slot drop --yes`, then run this again"
             : "; raise max_replication_slots and restart, or drop a slot that nobody uses"));
  }
  return status;
}

// Without what the snapshot was for, the slot would stand for a history that nobody knows. The
// session that made it may have ended.
absl::Status DropAgain(const CreateSlotOptions& options, Connection* connection,
                       const absl::Status& why) {
  connection->Query("ROLLBACK", std::chrono::steady_clock::now() + kAfterCancel);
  auto dropper = SqlConnection::Connect(options.conninfo, options.application_name);
  const absl::Status dropped = dropper.ok() ? DropSlot(&*dropper, options.slot) : dropper.status();
  return dropped.ok() || absl::IsNotFound(dropped)
             ? why
             : base::Annotate(why, absl::StrFormat("slot \"%s\" is left behind (%s): drop it",
                                                   options.slot, std::string(dropped.message())));
}

absl::StatusOr<CreatedSlot> ReadSnapshot(const Result& created, const CreateSlotOptions& options,
                                         Connection* connection) {
  CreatedSlot slot;
  ASSIGN_OR_RETURN(slot.consistent_point,
                   base::Lsn::Parse(created.rows() == 1 ? created.Text(0, 1) : ""));
  const Result snapshot =
      connection->Query(kSnapshot, std::chrono::steady_clock::now() + kAfterCancel);
  if (!snapshot.ok()) {
    return SqlStatus("reading the slot's snapshot", snapshot.error());
  }
  slot.snapshot = std::string(snapshot.Text(0, 0));
  if (options.on_snapshot) {
    const Result exported = connection->Query("SELECT pg_catalog.pg_export_snapshot()",
                                              std::chrono::steady_clock::now() + kAfterCancel);
    RETURN_IF_ERROR(exported.ok() ? options.on_snapshot(std::string(exported.Text(0, 0)))
                                  : SqlStatus("exporting its snapshot", exported.error()));
  }
  return slot;
}

// A copy waits for nobody, so between the old slot and the new one there is no slot for a moment
// only.
absl::Status ReplaceOld(const CreateSlotOptions& options, const std::string& made) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(options.conninfo, options.application_name));
  ASSIGN_OR_RETURN(const std::vector<Row> may,
                   connection.Query("SELECT current_user WHERE NOT has_function_privilege("
                                    "'pg_copy_logical_replication_slot(name,name,boolean)', "
                                    "'EXECUTE')"));
  if (!may.empty()) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "the old slot \"%s\" is still there: GRANT EXECUTE ON FUNCTION "
        "pg_copy_logical_replication_slot(name, name, boolean) TO %s, then run this again",
        options.slot, QuoteIdentifier(may[0].at(0).value_or(""))));
  }
  // It ends with the session that made it.
  ASSIGN_OR_RETURN(const std::optional<SlotInfo> there, FindSlot(&connection, made));
  if (!there || there->lost()) {
    return absl::UnavailableError(absl::StrFormat(
        "the session that was making slot \"%s\" has ended: the old one is still there, run this "
        "again",
        options.slot));
  }
  RETURN_IF_ERROR(options.drop_old());
  return base::Annotate(
      connection
          .Query("SELECT pg_copy_logical_replication_slot($1, $2, false)", {made, options.slot})
          .status(),
      absl::StrFormat("the old slot \"%s\" was dropped, run this again", options.slot));
}

}  // namespace

std::string InvalidationReasonColumn(int version) {
  if (version >= 170000) {
    return "s.invalidation_reason";
  }
  // 16 calls every invalidated slot conflicting, but on a primary nothing conflicts.
  return version >= 160000 ? "CASE WHEN s.conflicting AND pg_is_in_recovery() THEN "
                             "'conflict with recovery, or removed WAL' END"
                           : "NULL::text";
}

absl::StatusOr<std::vector<SlotInfo>> ListSlots(SqlConnection* connection) {
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   connection->Query(SlotQuery(connection->server_version()) + " ORDER BY 1"));
  std::vector<SlotInfo> slots;
  for (const Row& row : rows) {
    slots.push_back(SlotOf(row));
  }
  return slots;
}

absl::StatusOr<std::optional<SlotInfo>> FindSlot(SqlConnection* connection,
                                                 const std::string& name) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(SlotQuery(connection->server_version()) + " WHERE s.slot_name = $1",
                        {name}));
  return rows.empty() ? std::optional<SlotInfo>() : SlotOf(rows[0]);
}

absl::StatusOr<CreatedSlot> CreateSlot(const CreateSlotOptions& options) {
  // The replication grammar cannot even quote a quote.
  if (!IsSlotName(options.slot)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "creating slot \"%s\": a slot's name is 1 to 63 lower case letters, digits and underscores",
        options.slot));
  }
  auto opened = Connection::Open(
      ConnectionOptions{options.conninfo, options.application_name, /*replication=*/true});
  if (const auto* end = std::get_if<base::StreamEnd>(&opened)) {
    return end->status;
  }
  Connection& connection = std::get<Connection>(opened);
  const int version = connection.server_version();
  if (options.failover && version < kFailoverSince) {
    return absl::FailedPreconditionError(
        absl::StrFormat("creating slot \"%s\": failover slots need PostgreSQL 17", options.slot));
  }
  const Deadline deadline = std::chrono::steady_clock::now() + options.timeout;
  for (const SessionTimeout& timeout : kSessionTimeouts) {
    if (version >= timeout.since) {
      const Result set = connection.Query(absl::StrFormat("SET %s = 0", timeout.name), deadline);
      if (!set.ok()) {
        return CreateFailure(options, set.error(), connection.endpoint());
      }
    }
  }
  // A snapshot can be used only by the first command of such a transaction.
  const Result begin =
      connection.Query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", deadline);
  if (!begin.ok()) {
    return CreateFailure(options, begin.error(), connection.endpoint());
  }
  const bool replaces = options.drop_old != nullptr;
  const std::string name =
      replaces ? absl::StrFormat("walpost_new_%d", PQbackendPID(connection.get())) : options.slot;
  const Result created =
      connection.Query(absl::StrFormat("CREATE_REPLICATION_SLOT %s %s LOGICAL pgoutput %s",
                                       QuoteIdentifier(name), replaces ? "TEMPORARY" : "",
                                       version < kOptionListSince ? "USE_SNAPSHOT"
                                       : options.failover         ? "(SNAPSHOT 'use', FAILOVER)"
                                                                  : "(SNAPSHOT 'use')"),
                       deadline);
  if (!created.ok() && created.error().sqlstate.empty() &&
      PQstatus(connection.get()) == CONNECTION_OK) {
    const std::string blockers = BlockersOf(options, PQbackendPID(connection.get()));
    Cancel(&connection);
    return absl::DeadlineExceededError(absl::StrFormat(
        "creating slot \"%s\" on %s waited %d s for transactions to end: %s; end them or try again "
        "in a quieter moment (%s)",
        options.slot, connection.endpoint().ToString(),
        std::chrono::duration_cast<std::chrono::seconds>(options.timeout).count(), blockers,
        replaces ? "the old slot is still there" : "no slot was left behind"));
  }
  if (!created.ok()) {
    return CreateFailure(options, created.error(), connection.endpoint());
  }
  absl::StatusOr<CreatedSlot> slot = ReadSnapshot(created, options, &connection);
  if (replaces) {
    RETURN_IF_ERROR(slot.status());
    const absl::Status replaced = ReplaceOld(options, name);
    // The server would drop it a moment after this connection ends. Until then lists of slots show
    // it.
    connection.Query(absl::StrFormat("DROP_REPLICATION_SLOT %s", QuoteIdentifier(name)),
                     std::chrono::steady_clock::now() + kAfterCancel);
    RETURN_IF_ERROR(replaced);
  }
  return slot.ok() ? slot : DropAgain(options, &connection, slot.status());
}

absl::Status DropSlot(SqlConnection* connection, const std::string& name) {
  const auto dropped = connection->Query("SELECT pg_drop_replication_slot($1)", {name});
  if (dropped.ok()) {
    return absl::OkStatus();
  }
  const std::string text =
      absl::StrFormat("dropping slot \"%s\": %s", name, std::string(dropped.status().message()));
  if (connection->last_sqlstate() == sqlstate::kUndefinedObject) {
    return absl::NotFoundError(text);
  }
  if (connection->last_sqlstate() == sqlstate::kObjectInUse) {
    return absl::FailedPreconditionError(text + "; stop the walpost that uses it first");
  }
  return absl::Status(dropped.status().code(), text);
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kReleaseWithin{2'000};
// From here on nothing is decoded: what cannot be would end the stream.
constexpr base::Lsn kBehindEverything{UINT64_MAX};

void AwaitEnd(ReplicationStream* stream, Deadline deadline) {
  for (;;) {
    stream->Receive();
    std::string_view frame;
    ReplicationStream::Next next = stream->Take(&frame);
    while (next == ReplicationStream::Next::kFrame) {
      next = stream->Take(&frame);  // it comes again to who streams
    }
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (next == ReplicationStream::Next::kEnded || left.count() <= 0) {
      return;
    }
    pollfd readable{stream->socket(), POLLIN, 0};
    poll(&readable, 1, static_cast<int>(left.count()));
  }
}

}  // namespace

absl::StatusOr<SlotHold> SlotHold::Take(const ConnectOptions& options) {
  auto opened = Connection::Open(
      ConnectionOptions{options.conninfo, options.application_name, /*replication=*/true});
  if (const auto* end = std::get_if<StreamEnd>(&opened)) {
    return end->status;
  }
  Connection& connection = std::get<Connection>(opened);
  const Result start = connection.Query(
      StartReplicationCommand(StartOptions{options.slot, options.publication, kBehindEverything,
                                           connection.server_version(), /*messages=*/false,
                                           /*text_values=*/true}),
      std::chrono::steady_clock::now() + options.statement_timeout);
  if (!start.ok() || start.status() != PGRES_COPY_BOTH) {
    const std::string what =
        absl::StrFormat("keeping others from slot \"%s\" meanwhile", options.slot);
    return start.ok() ? absl::UnavailableError(what + ": the server did not begin to stream")
           : start.error().sqlstate == sqlstate::kObjectInUse
               ? absl::FailedPreconditionError(what + ": " + start.error().text +
                                               "; stop the walpost that uses it first")
               : SqlStatus(what, start.error());
  }
  const int pid = PQbackendPID(connection.get());
  std::unique_ptr<Pinger> pinger = MakePinger(connection, options);
  return SlotHold(
      options.slot, pid,
      std::make_unique<CopyStream>(std::move(connection), options.slot, options.publication),
      std::move(pinger));
}

absl::Status SlotHold::Check(SqlConnection* connection) const {
  ASSIGN_OR_RETURN(const std::vector<Row> ours,
                   connection->Query("SELECT FROM pg_replication_slots WHERE slot_name = $1 AND "
                                     "active_pid = $2",
                                     {slot_, std::to_string(pid_)}));
  return ours.empty() ? absl::FailedPreconditionError(absl::StrFormat(
                            "the connection that kept others from slot \"%s\" has ended: run this "
                            "again",
                            slot_))
                      : absl::OkStatus();
}

SlotHold::~SlotHold() {
  keep_alive_.reset();
  if (stream_ != nullptr && stream_->SendCopyDone().ok()) {
    AwaitEnd(stream_.get(), std::chrono::steady_clock::now() + kReleaseWithin);
  }
}

namespace {

constexpr std::optional<StreamEnd> (PreflightRun::*kProbeSteps[])() = {
    &PreflightRun::ServerVersion, &PreflightRun::Identity,    &PreflightRun::Server,
    &PreflightRun::Timeline,      &PreflightRun::Publication, &PreflightRun::Tables};

std::string CreateCommand(const std::string& slot, const std::string& from) {
  if (!from.empty()) {
    return absl::StrFormat(
        "SELECT slot_name, lsn FROM pg_catalog.pg_copy_logical_replication_slot(%s, %s, true)",
        QuoteLiteral(from), QuoteLiteral(slot));
  }
  return absl::StrFormat("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL pgoutput NOEXPORT_SNAPSHOT",
                         QuoteIdentifier(slot));
}

}  // namespace

std::variant<Connected, StreamEnd> ConnectTemporarySlot(const ConnectOptions& options,
                                                        bool from_slot) {
  auto opened = Connection::Open(
      ConnectionOptions{options.conninfo, options.application_name, /*replication=*/true});
  if (auto* end = std::get_if<StreamEnd>(&opened)) {
    return std::move(*end);
  }
  Connection& connection = std::get<Connection>(opened);
  const Deadline deadline = std::chrono::steady_clock::now() + options.statement_timeout;
  PreflightReport report;
  PreflightRun run(&connection, options, deadline, &report);
  for (const auto step : kProbeSteps) {
    if (std::optional<StreamEnd> problem = (run.*step)()) {
      return *std::move(problem);
    }
  }
  if (const Result unlimited = connection.LimitLockWaits({}, deadline); !unlimited.ok()) {
    return QueryFailure("SET lock_timeout", unlimited.error(), connection.endpoint());
  }
  const std::string slot = absl::StrFormat("walpost_tail_%d", PQbackendPID(connection.get()));
  const Result created =
      connection.Query(CreateCommand(slot, from_slot ? options.slot : ""), deadline);
  if (!created.ok()) {
    return QueryFailure(absl::StrFormat("making the temporary slot \"%s\"", slot), created.error(),
                        connection.endpoint());
  }
  const auto from = base::Lsn::Parse(created.Text(0, 1));
  report.facts.start_lsn = from.ok() ? *from : base::Lsn();
  GrowReceiveBuffer(&connection, deadline);
  // As text, which every type has: a few rows are to be seen, and no attempt comes after this one.
  const Result start =
      connection.Query(StartReplicationCommand(StartOptions{
                           slot, options.publication, report.facts.start_lsn,
                           report.facts.server_version, !options.message_prefixes.empty(),
                           /*text_values=*/true}),
                       deadline);
  if (!start.ok()) {
    return StartFailure(start.error(), slot, connection.endpoint());
  }
  return Connected{std::make_unique<CopyStream>(std::move(connection), slot, options.publication),
                   std::move(report.facts), nullptr};
}

}  // namespace walpost::postgres
