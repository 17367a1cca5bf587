#include "postgres/connect.h"

#include <algorithm>
#include <utility>

#include "postgres/connection.h"
#include "postgres/copy_stream.h"
#include "postgres/delivered_note.h"
#include "postgres/encryption.h"
#include "postgres/failure.h"
#include "postgres/pinger.h"
#include "postgres/preflight.h"
#include "postgres/start_replication.h"

namespace walpost::postgres {

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
  if (guard) {
    if (std::optional<StreamEnd> problem = guard(&report.facts)) {
      return *std::move(problem);
    }
    deadline = std::chrono::steady_clock::now() + options.statement_timeout;
  }
  std::string not_noted = NoteDelivered(&connection, report, deadline);
  // The server takes the later of the two anyway; saying so keeps the log and the facts exact. From the
  // last transaction and not from what follows it: see docs/design.md, "Histories".
  const base::Lsn remembered = report.facts.progress && report.facts.progress->last_transaction
                                   ? report.facts.progress->last_transaction->commit_lsn
                                   : base::Lsn();
  report.facts.start_lsn = std::max({start_lsn, report.facts.confirmed_flush_lsn, remembered});
  GrowReceiveBuffer(&connection, deadline);
  if (const Result unlimited = connection.LimitLockWaits({}, deadline); !unlimited.ok()) {
    return QueryFailure("SET lock_timeout", unlimited.error(), connection.place());
  }
  const Result start =
      connection.Query(StartReplicationCommand(StartOptions{
                           options.slot, options.publication, report.facts.start_lsn,
                           report.facts.server_version, !options.message_prefixes.empty()}),
                       deadline);
  if (!start.ok()) {
    return StartFailure(start.error(), options.slot, connection.place());
  }
  if (start.status() != PGRES_COPY_BOTH) {
    return StartFailure(ServerError{"", "the server did not begin to stream", ""}, options.slot,
                        connection.place());
  }
  std::unique_ptr<Pinger> pinger = MakePinger(connection);
  std::string peer = ClearTextPeer(connection.get());
  return Connected{
      std::make_unique<CopyStream>(std::move(connection), options.slot, options.publication),
      std::move(report.facts), std::move(pinger), std::move(peer), std::move(not_noted)};
}

}  // namespace walpost::postgres
