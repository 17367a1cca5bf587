#include "postgres/temporary_slot.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "postgres/connection.h"
#include "postgres/copy_stream.h"
#include "postgres/failure.h"
#include "postgres/preflight_steps.h"
#include "postgres/sql_connection.h"
#include "postgres/start_replication.h"

namespace walpost::postgres {
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
