#include "postgres/delivered_note.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

// One statement each: a walsender of PostgreSQL 13 takes no two at once.
constexpr const char* kWithinLimits[] = {
    "BEGIN", "SET LOCAL lock_timeout = '1s'", "SET LOCAL statement_timeout = '3s'",
    // A commit that waits for standbys knows no limit. An older note that a crash brings back is true.
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
