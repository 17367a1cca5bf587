#include "postgres/preflight.h"

#include <utility>

#include "postgres/preflight_steps.h"

namespace walpost::postgres {
namespace {

struct NamedStep {
  const char* name;
  std::optional<StreamEnd> (PreflightRun::*run)();
  bool needed_by_others;  // nothing after it makes sense when it fails
};

constexpr NamedStep kSteps[] = {
    {"server_version", &PreflightRun::ServerVersion, true},
    {"identity", &PreflightRun::Identity, true},
    {"server", &PreflightRun::Server, false},
    {"timeline", &PreflightRun::Timeline, false},
    {"slot", &PreflightRun::Slot, false},
    {"slot_free", &PreflightRun::SlotFree, false},
    {"publication", &PreflightRun::Publication, false},
    {"tables", &PreflightRun::Tables, false},
    {"record", &PreflightRun::Record, false},
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

std::variant<PreflightReport, StreamEnd> CheckSource(const ConnectOptions& options) {
  auto opened = Connection::Open(
      ConnectionOptions{options.conninfo, options.application_name, /*replication=*/true});
  if (auto* end = std::get_if<StreamEnd>(&opened)) {
    return std::move(*end);
  }
  return RunPreflight(&std::get<Connection>(opened), options, PreflightMode::kAll,
                      std::chrono::steady_clock::now() + options.statement_timeout);
}

}  // namespace walpost::postgres
