#include "postgres/slot_hold.h"

#include <poll.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "postgres/connection.h"
#include "postgres/copy_stream.h"
#include "postgres/failure.h"
#include "postgres/pinger.h"
#include "postgres/sqlstate.h"
#include "postgres/start_replication.h"

namespace walpost::postgres {
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

}  // namespace walpost::postgres
