#include "postgres/connect.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "postgres/connection.h"
#include "postgres/conninfo.h"
#include "postgres/failure.h"
#include "postgres/preflight.h"
#include "postgres/replication_stream.h"
#include "postgres/server_watch.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

bool SameProgress(const std::optional<base::Progress>& a, const std::optional<base::Progress>& b) {
  return a && b ? a->epoch == b->epoch && a->timeline == b->timeline && a->end_lsn == b->end_lsn
                : a.has_value() == b.has_value();
}

constexpr char kWrittenEnd[] =
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() "
    "ELSE pg_catalog.pg_current_wal_lsn() END";

// Does the slot stand anywhere else than where preflight saw it, or is there another record? Also
// reads when that was, and the end of the log: later than all that an earlier reader of the slot
// did.
std::optional<StreamEnd> SlotOrRecordChanged(const ConnectOptions& options,
                                             const ServerAddress& server,
                                             base::SourceFacts* facts) {
  // The attempt ends with this, so a server that is slow to let anybody in gets more than for a
  // ping.
  constexpr std::chrono::seconds kWithin{10};
  auto opened = OpenBeside(options, server, kWithin);
  if (auto* end = std::get_if<StreamEnd>(&opened)) {
    return std::move(*end);
  }
  Connection& connection = std::get<Connection>(opened);
  const Deadline deadline = std::chrono::steady_clock::now() + options.statement_timeout;
  const Result slot = connection.Query(
      absl::StrCat(
          "SELECT confirmed_flush_lsn, ", kServerClock, ", ", kWrittenEnd,
          " FROM pg_catalog.pg_replication_slots WHERE slot_name = ", QuoteLiteral(options.slot)),
      deadline);
  if (!slot.ok()) {
    return QueryFailure("reading pg_replication_slots", slot.error(), connection.endpoint());
  }
  const base::Lsn stands =
      slot.rows() == 1 ? base::Lsn::Parse(slot.Text(0, 0)).value_or(base::Lsn()) : base::Lsn();
  if (slot.rows() != 1 || stands != facts->confirmed_flush_lsn) {
    return LostEnd(absl::StrFormat("slot \"%s\" on %s moved from %s to %s while walpost connected",
                                   options.slot, connection.endpoint().ToString(),
                                   facts->confirmed_flush_lsn.ToString(), stands.ToString()));
  }
  std::int64_t clock_us = 0;
  if (!absl::SimpleAtoi(slot.Text(0, 1).data(), &clock_us)) {
    return LostEnd("the server's clock is not a number");
  }
  facts->begun_at = base::WallTime(std::chrono::microseconds(clock_us));
  facts->server_wal_lsn =
      std::max(facts->server_wal_lsn, base::Lsn::Parse(slot.Text(0, 2)).value_or(base::Lsn()));
  return LookAtRecord(&connection, options, *facts, deadline);
}

// Is what `facts` were judged by still so, now that the slot is ours?
std::optional<StreamEnd> ChangedBeforeStart(const ConnectOptions& options,
                                            const ServerAddress& server, const Guard& guard,
                                            base::SourceFacts* facts) {
  if (std::optional<StreamEnd> problem = SlotOrRecordChanged(options, server, facts)) {
    return problem;
  }
  if (!guard) {
    return std::nullopt;
  }
  base::SourceFacts again = *facts;
  again.progress.reset();
  if (std::optional<StreamEnd> problem = guard(&again)) {
    return problem;
  }
  if (!SameProgress(facts->progress, again.progress)) {
    return LostEnd("what is remembered of this pipeline changed while walpost connected");
  }
  return std::nullopt;
}

// Is there a table that becomes an outbox with this connection?
bool Adopts(const base::SourceFacts& facts) {
  return facts.progress &&
         std::any_of(facts.tables.begin(), facts.tables.end(),
                     [&](const auto& table) { return facts.progress->Find(table) == nullptr; });
}

// The guard waits for Kafka. Meanwhile another process may read the slot and go on, so that more is
// in Kafka than the log had when preflight looked. So before it ends the attempt, the log's end is
// read again.
std::optional<StreamEnd> AskGuard(Connection* connection, const ConnectOptions& options,
                                  const Guard& guard, base::SourceFacts* facts) {
  std::optional<StreamEnd> problem = guard(facts);
  if (!problem || problem->kind != StreamEnd::Kind::kOperator || facts->in_recovery) {
    return problem;
  }
  const Result now = connection->Query(
      "SELECT active, pg_catalog.pg_current_wal_lsn() FROM pg_catalog.pg_replication_slots WHERE "
      "slot_name = " +
          QuoteLiteral(options.slot),
      std::chrono::steady_clock::now() + options.statement_timeout);
  if (!now.ok()) {
    return QueryFailure("reading pg_replication_slots", now.error(), connection->endpoint());
  }
  if (now.rows() == 1 && now.Text(0, 0) == "t") {
    return LostEnd(
        absl::StrFormat("slot \"%s\" on %s was taken by another process while walpost "
                        "read what is remembered",
                        options.slot, connection->endpoint().ToString()));
  }
  if (now.rows() == 1) {
    facts->server_wal_lsn = base::Lsn::Parse(now.Text(0, 1)).value_or(facts->server_wal_lsn);
  }
  facts->progress.reset();
  return guard(facts);
}

constexpr char kEndOfLog[] =
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() "
    "ELSE pg_catalog.pg_current_wal_insert_lsn() END";

std::optional<StreamEnd> ReadNextXid(Connection* connection, const char* expression,
                                     Deadline deadline, base::SourceFacts* facts) {
  const Result read = connection->Query(absl::StrCat("SELECT ", expression), deadline);
  if (!read.ok()) {
    return QueryFailure("reading the next transaction id", read.error(), connection->endpoint());
  }
  if (!absl::SimpleAtoi(read.Text(0, 0).data(), &facts->next_xid.value)) {
    return LostEnd("the next transaction id is no number");
  }
  return std::nullopt;
}

// A server that crashes before an id is on its disk gives it again, so this waits until the log up
// to `end` is there. Nothing waits for the commit of the transaction that only took an id, so it
// comes there within three times wal_writer_delay.
std::optional<StreamEnd> AwaitOnDisk(Connection* connection, base::Lsn end) {
  constexpr std::chrono::seconds kOnDiskWithin{60};
  const Deadline deadline = std::chrono::steady_clock::now() + kOnDiskWithin;
  const std::string look = absl::StrFormat(
      "SELECT pg_catalog.pg_current_wal_flush_lsn() >= %s, pg_catalog.pg_sleep(0.02)",
      QuoteLiteral(end.ToString()));
  while (std::chrono::steady_clock::now() < deadline) {
    const Result flushed = connection->Query(look, deadline);
    if (!flushed.ok()) {
      return QueryFailure("reading what is on disk", flushed.error(), connection->endpoint());
    }
    if (flushed.Text(0, 0) == "t") {
      return std::nullopt;
    }
  }
  return LostEnd(absl::StrFormat("a transaction id is not on the server's disk after %d s",
                                 kOnDiskWithin.count()));
}

// When no transaction is open that may have been so when the tables were published, the end of the
// log and the clock say it all. A server that was set back gives ids again, so without them less
// can go wrong. But one that stays open for long must not hold up the other outboxes. Then the next
// id counts, with the position by which the log says that lower ones were given.
std::optional<StreamEnd> FindAdoption(Connection* connection, base::SourceFacts* facts) {
  constexpr std::chrono::seconds kOpenFor{10};
  const Deadline until = std::chrono::steady_clock::now() + kOpenFor;
  // Behind what preflight has read: whatever published a table is over.
  if (std::optional<StreamEnd> problem = ReadNextXid(connection, kNextXid, until, facts)) {
    return problem;
  }
  // From left to right, and the snapshot before all.
  const std::string look = absl::StrFormat(
      "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) "
      "OPERATOR(pg_catalog.>=) "
      "'%u'::pg_catalog.xid8, %s, %s, pg_catalog.pg_sleep(0.02)",
      facts->next_xid.value, kEndOfLog, kServerClock);
  base::Since& since = facts->adoption.since;
  do {
    const Result looked = connection->Query(look, until + kOpenFor);
    if (!looked.ok()) {
      return QueryFailure("reading which transactions are open", looked.error(),
                          connection->endpoint());
    }
    std::int64_t clock_us = 0;
    if (!absl::SimpleAtoi(looked.Text(0, 2).data(), &clock_us)) {
      return LostEnd("the server's clock is not a number");
    }
    since = {base::Lsn::Parse(looked.Text(0, 1)).value_or(base::Lsn()),
             base::WallTime(std::chrono::microseconds(clock_us)), facts->timeline};
    if (looked.Text(0, 0) == "t") {
      return std::nullopt;
    }
  } while (std::chrono::steady_clock::now() < until);
  facts->adoption.first_xid = {facts->next_xid, facts->timeline, since.lsn};
  since.lsn = facts->progress->end_lsn;
  since.timeline = facts->progress->timeline;
  return facts->in_recovery ? std::nullopt : AwaitOnDisk(connection, facts->adoption.first_xid.lsn);
}

}  // namespace

std::variant<Connected, StreamEnd> Connect(const ConnectOptions& options, base::Lsn start_lsn,
                                           const Guard& guard) {
  auto opened = Connection::Open(
      ConnectionOptions{options.conninfo, options.application_name, /*replication=*/true});
  if (auto* end = std::get_if<StreamEnd>(&opened)) {
    return std::move(*end);
  }
  Connection& connection = std::get<Connection>(opened);
  Deadline deadline = std::chrono::steady_clock::now() + options.statement_timeout;
  PreflightReport report =
      RunPreflight(&connection, options, PreflightMode::kStopAtFirst, deadline);
  if (const StreamEnd* problem = report.problem(); problem != nullptr) {
    return *problem;
  }
  if (std::optional<StreamEnd> problem =
          ReadNextXid(&connection, kSnapshotEnd, deadline, &report.facts)) {
    return *std::move(problem);
  }
  if (guard) {
    if (std::optional<StreamEnd> problem = AskGuard(&connection, options, guard, &report.facts)) {
      return *std::move(problem);
    }
    if (Adopts(report.facts)) {
      if (std::optional<StreamEnd> problem = FindAdoption(&connection, &report.facts)) {
        return *std::move(problem);
      }
    }
    deadline = std::chrono::steady_clock::now() + options.statement_timeout;
  }
  std::string not_noted = NoteDelivered(&connection, report, deadline);
  // The server takes the later of the two anyway; saying so keeps the log and the facts exact. From
  // the last transaction and not from what follows it: see docs/design.md, "Histories".
  const base::Lsn remembered =
      report.facts.progress ? report.facts.progress->FirstKnown() : base::Lsn();
  report.facts.start_lsn = std::max({start_lsn, report.facts.confirmed_flush_lsn, remembered});
  report.facts.text_values =
      options.text_until.valid() && report.facts.start_lsn <= options.text_until;
  GrowReceiveBuffer(&connection, deadline);
  if (const Result unlimited = connection.LimitLockWaits({}, deadline); !unlimited.ok()) {
    return QueryFailure("SET lock_timeout", unlimited.error(), connection.endpoint());
  }
  const Result start = connection.Query(
      StartReplicationCommand(StartOptions{
          options.slot, options.publication, report.facts.start_lsn, report.facts.server_version,
          !options.message_prefixes.empty(), report.facts.text_values}),
      deadline);
  if (!start.ok()) {
    return StartFailure(start.error(), options.slot, connection.endpoint());
  }
  if (start.status() != PGRES_COPY_BOTH) {
    return StartFailure(ServerError{"", "the server did not begin to stream", ""}, options.slot,
                        connection.endpoint());
  }
  Connected connected;
  connected.server = connection.address();
  connected.pinger = MakePinger(connection, options);
  connected.clear_text_peer = ClearTextPeer(connection.get());
  connected.delivered_not_noted = std::move(not_noted);
  connected.stream =
      std::make_unique<CopyStream>(std::move(connection), options.slot, options.publication);
  {
    const KeepAlive keep_alive(connected.stream.get(), connected.pinger.get());
    if (std::optional<StreamEnd> changed =
            ChangedBeforeStart(options, connected.server, guard, &report.facts)) {
      return *std::move(changed);
    }
  }
  connected.facts = std::move(report.facts);
  return connected;
}

}  // namespace walpost::postgres
