#include "operations/setup/gap_text.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/deadletters/dlq_text.h"

namespace walpost::operations {

using postgres::Row;
using postgres::SqlConnection;

std::string WhatIsSent(const RecreateOptions& options, const Gap& gap) {
  if (options.leave_gap) {
    return absl::StrFormat(
        "a new slot begins now: events committed before that and not in Kafka are not sent%s\n",
        gap.from.valid() ? absl::StrFormat(", which are those after %s", gap.from.ToString()) : "");
  }
  std::string text =
      "a new slot begins now; then the rows from before it are sent that Kafka does not hold, ";
  if (gap.since_ms) {
    text += absl::StrFormat("of those created since %s", TimeText(*gap.since_ms));
  } else if (gap.from.valid() && gap.notes.valid()) {
    text +=
        absl::StrFormat("of those committed after %s, or not surely before", gap.from.ToString());
    if (gap.notes < gap.from) {
      text += absl::StrFormat("; what the database itself knows to be delivered ends at %s",
                              gap.notes.ToString());
    }
  } else if (gap.from.valid()) {
    text += absl::StrFormat(
        "of all: those committed before %s should be there, but the database has not noted how far "
        "was delivered, so they cannot be left out; what Kafka has deleted by its age is sent "
        "again, too; --since limits that",
        gap.from.ToString());
  } else {
    text +=
        "of all: how far Kafka had them is not known, so what Kafka has deleted by its age is sent "
        "again, too; --since limits that";
  }
  text += "\n";
  if (!options.init.source.message_prefixes.empty()) {
    text += "events of the gap that are messages stand in no table: they are not sent\n";
  }
  return text;
}

absl::StatusOr<std::string> WhatCannotBeSent(const InitOptions& options,
                                             SqlConnection* connection) {
  std::string text;
  for (const postgres::SourceTable& table : options.source.tables) {
    ASSIGN_OR_RETURN(
        const std::vector<Row> found,
        connection->Query("SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = "
                          "'events_ephemeral'",
                          {postgres::QuoteIdentifier(table.schema) + "." +
                           postgres::QuoteIdentifier(table.table)}));
    if (!found.empty()) {
      text += absl::StrFormat(
          "%s.%s keeps no rows (set_ephemeral): its events of the gap are not sent\n", table.schema,
          table.table);
    }
  }
  return text;
}

}  // namespace walpost::operations
