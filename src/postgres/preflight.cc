#include "postgres/preflight.h"

#include <utility>

#include "postgres/preflight_steps.h"

namespace walpost::postgres {
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
    // A cluster has several standbys, and each its own slots. `init` writes on the primary, and keeps nobody
    // from a slot of these.
    for (const auto step : {&PreflightRun::SlotStreams, &PreflightRun::RecordAgain}) {
      if (std::optional<StreamEnd> problem = (run.*step)()) {
        return *std::move(problem);
      }
    }
  }
  return std::move(report.facts);
}

}  // namespace walpost::postgres
