#include "postgres/preflight.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "postgres/conninfo.h"
#include "postgres/replication_stream.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

constexpr int kColumnListsSince = 150000;
constexpr int kGeneratedSentSince = 180000;

}  // namespace

std::string SentColumnSql(int server_version, std::string_view publication) {
  std::string without_list = "a.attgenerated = ''";
  if (server_version >= kGeneratedSentSince) {
    absl::StrAppendFormat(&without_list,
                          " OR a.attgenerated = 's' AND EXISTS (SELECT FROM "
                          "pg_catalog.pg_publication p WHERE p.oid = %s AND p.pubgencols = 's')",
                          publication);
  }
  return server_version < kColumnListsSince
             ? "(" + without_list + ")"
             : absl::StrFormat(
                   "coalesce((SELECT a.attnum = ANY (l.prattrs) FROM pg_catalog.pg_publication_rel "
                   "l WHERE l.prpubid = %s AND l.prrelid = a.attrelid), %s)",
                   publication, without_list);
}

std::string ListableColumnSql(int server_version) {
  return server_version < kGeneratedSentSince ? "a.attgenerated = ''"
                                              : "a.attgenerated IN ('', 's')";
}

namespace {

struct NamedStep {
  const char* name;
  std::optional<StreamEnd> (PreflightRun::*run)();
  bool needed_by_others;  // nothing after it makes sense when it fails
  bool of_the_slot;
};

constexpr NamedStep kSteps[] = {
    {"server_version", &PreflightRun::ServerVersion, true, false},
    {"identity", &PreflightRun::Identity, true, false},
    {"server", &PreflightRun::Server, false, false},
    {"timeline", &PreflightRun::Timeline, false, false},
    {"slot", &PreflightRun::Slot, false, true},
    {"slot_free", &PreflightRun::SlotFree, false, true},
    {"publication", &PreflightRun::Publication, false, false},
    {"tables", &PreflightRun::Tables, false, false},
    {"record", &PreflightRun::Record, false, true},
    {"dead_letters", &PreflightRun::DeadLetters, false, true},
};

}  // namespace

const StreamEnd* PreflightReport::problem() const {
  for (const PreflightStep& step : steps) {
    if (step.problem.has_value()) {
      return &*step.problem;
    }
  }
  return nullptr;
}

PreflightReport RunPreflight(Connection* connection, const ConnectOptions& options,
                             PreflightMode mode, Deadline deadline) {
  PreflightReport report;
  PreflightRun run(connection, options, deadline, &report);
  for (const NamedStep& step : kSteps) {
    std::optional<StreamEnd> problem = (run.*step.run)();
    const bool failed = problem.has_value();
    // Gone, or still busy with a statement that got no answer in time.
    const bool gone = PQstatus(connection->get()) != CONNECTION_OK ||
                      PQtransactionStatus(connection->get()) == PQTRANS_ACTIVE;
    report.steps.push_back(PreflightStep{step.name, std::move(problem)});
    if (failed && (mode == PreflightMode::kStopAtFirst || step.needed_by_others || gone)) {
      break;
    }
  }
  return report;
}

std::optional<StreamEnd> LookAtRecord(Connection* connection, const ConnectOptions& options,
                                      const base::SourceFacts& facts, Deadline deadline) {
  PreflightReport report;
  report.facts = facts;
  return PreflightRun(connection, options, deadline, &report).RecordAgain();
}

std::variant<PreflightReport, StreamEnd> CheckSource(const ConnectOptions& options) {
  auto opened = Connection::Open(
      ConnectionOptions{options.conninfo, options.application_name, /*replication=*/true});
  if (auto* end = std::get_if<StreamEnd>(&opened)) {
    return std::move(*end);
  }
  return RunPreflight(&std::get<Connection>(opened), options, PreflightMode::kAll,
                      std::chrono::steady_clock::now() + options.statement_timeout);
}

std::variant<base::SourceFacts, StreamEnd> ReadHistory(const ConnectOptions& options) {
  auto opened = Connection::Open(
      ConnectionOptions{options.conninfo, options.application_name, /*replication=*/true});
  if (auto* end = std::get_if<StreamEnd>(&opened)) {
    return std::move(*end);
  }
  Connection& connection = std::get<Connection>(opened);
  const Deadline deadline = std::chrono::steady_clock::now() + options.statement_timeout;
  // First: the log of a standby that is promoted meanwhile has an end that moves on.
  const Result recovery = connection.Query("SELECT pg_is_in_recovery()", deadline);
  if (!recovery.ok()) {
    return QueryFailure("pg_is_in_recovery()", recovery.error(), connection.endpoint());
  }
  PreflightReport report;
  PreflightRun run(&connection, options, deadline, &report);
  for (const auto step : {&PreflightRun::Identity, &PreflightRun::Timeline}) {
    if (std::optional<StreamEnd> problem = (run.*step)()) {
      return *std::move(problem);
    }
  }
  report.facts.in_recovery = recovery.True(0, 0);
  return std::move(report.facts);
}

std::variant<base::SourceFacts, StreamEnd> LookAgain(const ConnectOptions& options) {
  auto opened = Connection::Open(ConnectionOptions{options.conninfo, options.application_name,
                                                   /*replication=*/true, options.server});
  if (auto* end = std::get_if<StreamEnd>(&opened)) {
    return std::move(*end);
  }
  Connection& connection = std::get<Connection>(opened);
  const Deadline deadline = std::chrono::steady_clock::now() + options.statement_timeout;
  PreflightReport report;
  PreflightRun run(&connection, options, deadline, &report);
  for (const NamedStep& step : kSteps) {
    if (step.of_the_slot) {
      continue;
    }
    if (std::optional<StreamEnd> problem = (run.*step.run)()) {
      return *std::move(problem);
    }
  }
  if (report.facts.in_recovery) {
    // A cluster has several standbys, and each its own slots. `init` writes on the primary, and
    // keeps nobody from a slot of these.
    for (const auto step : {&PreflightRun::SlotStreams, &PreflightRun::RecordAgain}) {
      if (std::optional<StreamEnd> problem = (run.*step)()) {
        return *std::move(problem);
      }
    }
  }
  return std::move(report.facts);
}

namespace {

using base::HaltReason;

constexpr int kOldestVersion = 130000;
constexpr int kMessagesSince = 140000;
constexpr int kStandbyDecodingSince = 160000;
constexpr int kNewestKnownMajor = 18;

template <typename Integer>
bool ParseInteger(std::string_view text, Integer* value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && stop == text.data() + text.size();
}

// The next name of a comma-separated list, unquoted and lower case as PostgreSQL compares them.
std::string TakeName(std::string_view* list) {
  std::string name;
  bool quoted = false;
  std::size_t at = 0;
  for (; at < list->size() && (quoted || (*list)[at] != ','); ++at) {
    const char c = (*list)[at];
    if (c == '"') {
      quoted = !quoted;
      if (quoted && at > 0 && (*list)[at - 1] == '"' && !name.empty()) {
        name.push_back(c);  // two of them stand for one
      }
    } else if (quoted || !absl::ascii_isspace(static_cast<unsigned char>(c))) {
      name.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    }
  }
  list->remove_prefix(std::min(at + 1, list->size()));
  return name;
}

}  // namespace

bool IsSynchronousStandby(std::string_view synchronous_standby_names,
                          std::string_view application_name) {
  // "a, b", "2 (a, b)", "FIRST 2 (a, b)", "ANY 1 (a, *)"
  std::string_view names = synchronous_standby_names;
  const std::size_t open = names.find_first_of("(\"");  // within quotes it belongs to a name
  if (open != std::string_view::npos && names[open] == '(') {
    names.remove_prefix(open + 1);
    names = names.substr(0, names.rfind(')'));
  }
  const std::string ours = absl::AsciiStrToLower(std::string(application_name));
  while (!names.empty()) {
    const std::string name = TakeName(&names);
    if (name == "*" || name == ours) {
      return true;
    }
  }
  return false;
}

std::optional<StreamEnd> PreflightRun::ServerVersion() {
  facts().server_version = version();
  facts().host = endpoint().host;
  facts().database = endpoint().database;
  if (const std::string peer = ClearTextPeer(connection_.get()); !peer.empty()) {
    report_.warnings.push_back(ClearTextWarning(peer));
  }
  facts().message_prefixes = options_.message_prefixes;
  if (version() < kOldestVersion) {
    return OperatorEnd(HaltReason::kSchemaMismatch,
                       absl::StrFormat("PostgreSQL %d on %s is too old: walpost needs 13 or newer",
                                       version() / 10000, endpoint().ToString()));
  }
  if (!options_.message_prefixes.empty() && version() < kMessagesSince) {
    return OperatorEnd(
        HaltReason::kSchemaMismatch,
        absl::StrFormat("logical messages (messages.prefixes) need PostgreSQL 14 or newer, %s has "
                        "%d: upgrade it or remove messages.prefixes",
                        endpoint().ToString(), version() / 10000));
  }
  if (version() / 10000 > kNewestKnownMajor) {
    report_.warnings.push_back(
        absl::StrFormat("PostgreSQL %d on %s is newer than this walpost knows (%d)",
                        version() / 10000, endpoint().ToString(), kNewestKnownMajor));
  }
  const Result limited = connection_.LimitLockWaits(options_.lock_timeout, deadline_);
  if (!limited.ok()) {
    return QueryFailure("SET lock_timeout", limited.error(), endpoint());
  }
  for (const auto& [setting, since] : kSessionTimeouts) {
    if (version() >= since) {
      const Result set = Query(absl::StrFormat("SET %s = 0", setting));
      if (!set.ok()) {
        return QueryFailure(absl::StrFormat("SET %s", setting), set.error(), endpoint());
      }
    }
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::Identity() {
  const Result identity = Query("IDENTIFY_SYSTEM");
  if (!identity.ok()) {
    return QueryFailure("IDENTIFY_SYSTEM", identity.error(), endpoint());
  }
  bool valid = identity.rows() == 1 && identity.columns() >= 4 &&
               ParseInteger(identity.Text(0, 0), &facts().system_identifier) &&
               ParseInteger(identity.Text(0, 1), &facts().timeline);
  if (valid) {
    const auto position = base::Lsn::Parse(identity.Text(0, 2));
    valid = position.ok();
    facts().server_wal_lsn = position.ok() ? *position : base::Lsn();
    facts().database = std::string(identity.Text(0, 3));
  }
  if (!valid) {
    return OperatorEnd(
        HaltReason::kProtocolError,
        absl::StrFormat("IDENTIFY_SYSTEM on %s gave an answer that PostgreSQL does not give: is "
                        "there a pooler between? connect to the server itself",
                        endpoint().ToString()));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::Server() {
  const Result settings = Query(
      "SELECT current_setting('wal_level'), pg_is_in_recovery(), "
      "(SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'), "
      "current_setting('synchronous_standby_names'), current_setting('application_name'), "
      "current_setting('max_slot_wal_keep_size'), "
      "coalesce(current_setting('idle_replication_slot_timeout', true), '0'), "
      "(SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size')");
  if (!settings.ok()) {
    return QueryFailure("reading the server's settings", settings.error(), endpoint());
  }
  if (!ParseInteger(settings.Text(0, 2), &facts().wal_sender_timeout_ms)) {
    facts().wal_sender_timeout_ms = base::SourceFacts().wal_sender_timeout_ms;
  }
  constexpr int kMegabyteShift = 20;
  if (std::uint64_t megabytes = 0; ParseInteger(settings.Text(0, 7), &megabytes)) {  // -1 is none
    facts().wal_keep_bytes = megabytes << kMegabyteShift;
  }
  facts().in_recovery = settings.True(0, 1);
  if (settings.Text(0, 5) != "-1") {
    report_.warnings.push_back(
        absl::StrFormat("max_slot_wal_keep_size is %s on %s: when walpost is that far behind, the "
                        "slot is invalidated and events are lost from the stream",
                        settings.Text(0, 5), endpoint().ToString()));
  }
  if (settings.Text(0, 6) != "0") {
    report_.warnings.push_back(absl::StrFormat(
        "idle_replication_slot_timeout is %s on %s: when walpost is stopped for that long, or has "
        "to connect again while Kafka is away, the slot is invalidated and events are lost from "
        "the stream; set it to 0",
        settings.Text(0, 6), endpoint().ToString()));
  }
  if (settings.True(0, 1) && version() < kStandbyDecodingSince) {
    // It may be promoted, or the address may move to the primary: not for an operator yet.
    return LostEnd(absl::StrFormat(
        "%s is a standby, and logical slots live on the primary before PostgreSQL 16: list all "
        "hosts in source.conninfo with target_session_attrs=read-write",
        endpoint().ToString()));
  }
  if (settings.Text(0, 0) != "logical") {
    return OperatorEnd(
        HaltReason::kSlotMissing,
        absl::StrFormat("wal_level is %s on %s, so no logical slot can exist: run ALTER SYSTEM SET "
                        "wal_level = logical, restart PostgreSQL (a reload is not enough), then "
                        "run `walpost init`",
                        settings.Text(0, 0), endpoint().ToString()));
  }
  return Synchronous(settings.Text(0, 3), settings.Text(0, 4));
}

// Nobody's commit waits for who reads from a standby. When it is promoted, the next connect asks
// anew.
std::optional<StreamEnd> PreflightRun::Synchronous(std::string_view names,
                                                   std::string_view application_name) {
  if (!IsSynchronousStandby(names, application_name)) {
    return std::nullopt;
  }
  const std::string text = absl::StrFormat(
      "synchronous_standby_names (%s) on %s matches our application_name \"%s\", so every commit "
      "would wait for Kafka%s: take it out of that list or put another application_name into "
      "source.conninfo",
      names, endpoint().ToString(), application_name,
      facts().in_recovery ? " once this standby is promoted" : "");
  if (facts().in_recovery) {
    report_.warnings.push_back(text);
    return std::nullopt;
  }
  return OperatorEnd(HaltReason::kInitIncomplete, text);
}

std::optional<StreamEnd> PreflightRun::Timeline() {
  if (facts().timeline <= 1) {
    return std::nullopt;
  }
  const std::string command = absl::StrFormat("TIMELINE_HISTORY %d", facts().timeline);
  const Result answer = Query(command);
  if (!answer.ok()) {
    return HistoryFailure(command, answer.error(), endpoint());
  }
  auto history = ParseTimelineHistory(answer.rows() == 1 ? answer.Text(0, 1) : "");
  if (!history.ok() || history->empty()) {
    return HistoryUnreadable(command,
                             history.ok() ? "it is empty" : std::string(history.status().message()),
                             endpoint());
  }
  facts().timeline_history = *std::move(history);
  return std::nullopt;
}

namespace {

// One statement each: a walsender of PostgreSQL 13 takes no two at once.
constexpr const char* kWithinLimits[] = {
    "BEGIN", "SET LOCAL lock_timeout = '1s'", "SET LOCAL statement_timeout = '3s'",
    // A commit that waits for standbys knows no limit. An older note that a crash brings back is
    // true.
    "SET LOCAL synchronous_commit = off"};

// The smaller of the two: someone else moves only the slot, and so does a server that is set back.
base::Lsn Delivered(const base::SourceFacts& facts) {
  return facts.progress ? std::min(facts.confirmed_flush_lsn, facts.progress->end_lsn)
                        : facts.confirmed_flush_lsn;
}

}  // namespace

std::string NoteDelivered(Connection* connection, const PreflightReport& report,
                          Deadline deadline) {
  const base::Lsn delivered = Delivered(report.facts);
  if (report.facts.in_recovery || !report.recorded_delivery ||
      !report.recorded_delivery->writable || !delivered.valid() ||
      report.recorded_delivery->delivered == delivered) {
    return "";
  }
  const auto failed = [&](const Result& result) {
    std::string why = result.error().text;
    (void)connection->Query("ROLLBACK", deadline);
    return absl::StrFormat(
        "how far was delivered could not be noted in walpost.pipeline on %s: %s; until it is, at "
        "the "
        "next connect, outbox.maintain drops no row that was delivered since the last note",
        connection->endpoint().ToString(), why);
  };
  for (const char* const statement : kWithinLimits) {
    if (const Result result = connection->Query(statement, deadline); !result.ok()) {
      return failed(result);
    }
  }
  if (const Result written = connection->Query(
          absl::StrFormat("UPDATE walpost.pipeline SET delivered_lsn = %s WHERE name = %s",
                          QuoteLiteral(delivered.ToString()),
                          QuoteLiteral(report.recorded_delivery->pipeline)),
          deadline);
      !written.ok()) {
    return failed(written);
  }
  const Result committed = connection->Query("COMMIT", deadline);
  return committed.ok() ? "" : failed(committed);
}

}  // namespace walpost::postgres
