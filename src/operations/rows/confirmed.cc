#include "operations/rows/confirmed.h"

#include <poll.h>

#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "postgres/slots.h"

namespace walpost::operations {
namespace {

using base::Lsn;
using postgres::Row;
using postgres::SqlConnection;
using std::chrono::steady_clock;

constexpr int kStepMs = 100;
// A position "behind" the last record of a page lies behind the next page's header, which nothing is
// confirmed up to before there is a record. No record ends within a header.
constexpr std::uint64_t kPageBytes = 8192;
constexpr std::uint64_t kHeaderBytesMax = 40;

absl::Status NotConfirmed(const postgres::SlotInfo& slot, Lsn position) {
  return absl::DeadlineExceededError(
      absl::StrFormat("slot %s is confirmed up to %s and not up to %s, where the rows were read%s",
                      slot.name, slot.confirmed_flush_lsn.ToString(), position.ToString(),
                      slot.active ? ": walpost is behind (`walpost slot list`); try again later"
                                  : ": nobody streams it; start `walpost run`, then try again"));
}

absl::Status NotReplayed(Lsn replayed, Lsn position) {
  return absl::AbortedError(absl::StrFormat(
      "the standby has replayed the log up to %s, which is %d bytes behind %s, where the source "
      "is: "
      "rows may be missing there; see whether its replay is paused or stuck "
      "(pg_is_wal_replay_paused(), pg_stat_wal_receiver), and try again later or with a longer "
      "--wait",
      replayed.ToString(), position.value() - replayed.value(), position.ToString()));
}

}  // namespace

absl::StatusOr<Lsn> EndOfSnapshot(SqlConnection* connection) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query("SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE "
                        "pg_current_wal_insert_lsn() END::text"));
  ASSIGN_OR_RETURN(const Lsn end, Lsn::Parse(rows.at(0).at(0).value_or("")));
  const std::uint64_t in_page = end.value() % kPageBytes;
  return in_page <= kHeaderBytesMax ? Lsn(end.value() - in_page) : end;
}

absl::Status AwaitConfirmed(const postgres::ConnectOptions& source, Lsn position,
                            std::chrono::milliseconds patience) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(source.conninfo, source.application_name));
  const auto deadline = steady_clock::now() + patience;
  while (true) {
    ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(&connection, source.slot));
    if (!slot) {
      return absl::NotFoundError(
          absl::StrFormat("slot %s does not exist, so nothing shows what is in Kafka: see "
                          "docs/runbook.md, slot_missing",
                          source.slot));
    }
    if (slot->confirmed_flush_lsn >= position) {
      return absl::OkStatus();
    }
    if (steady_clock::now() >= deadline) {
      return NotConfirmed(*slot, position);
    }
    poll(nullptr, 0, kStepMs);
  }
}

absl::Status AwaitReplayed(SqlConnection* standby, const postgres::ConnectOptions& source,
                           std::chrono::milliseconds patience) {
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(source.conninfo, source.application_name));
  ASSIGN_OR_RETURN(const Lsn position, EndOfSnapshot(&connection));
  const auto deadline = steady_clock::now() + patience;
  while (true) {
    ASSIGN_OR_RETURN(const Lsn replayed, EndOfSnapshot(standby));
    if (replayed >= position) {
      return absl::OkStatus();
    }
    if (steady_clock::now() >= deadline) {
      return NotReplayed(replayed, position);
    }
    poll(nullptr, 0, kStepMs);
  }
}

}  // namespace walpost::operations
