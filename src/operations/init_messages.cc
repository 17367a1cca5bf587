#include "operations/init_messages.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "operations/pipeline_record.h"
#include "operations/schema_scripts.h"
#include "postgres/slots.h"

namespace walpost::operations {
namespace {

using postgres::QuoteLiteral;
using postgres::SqlConnection;

constexpr int kMessagesSince = 140000;

bool AddsTo(const std::vector<std::string>& recorded, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
    return std::find(recorded.begin(), recorded.end(), prefix) == recorded.end();
  });
}

}  // namespace

absl::Status CheckMessages(const InitOptions& options, SqlConnection* connection) {
  if (connection->server_version() < kMessagesSince) {
    return absl::FailedPreconditionError(
        absl::StrFormat("logical messages need PostgreSQL 14 or newer, %s has %d: use a table",
                        connection->host(), connection->server_version() / 10000));
  }
  const std::vector<std::string>& prefixes = options.source.message_prefixes;
  ASSIGN_OR_RETURN(const auto recorded, ReadPrefixes(connection, options.name));
  if (prefixes.empty() && recorded.empty()) {
    return absl::FailedPreconditionError(
        "messages.prefixes is empty: list the prefixes of the messages that are to be events");
  }
  ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(connection, options.source.slot));
  if (slot && slot->active && AddsTo(recorded, prefixes)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "slot \"%s\" is in use by PID %d, which may be a walpost that does not read the new prefix "
        "yet and would pass over its events: stop it, run init, start it with this configuration; "
        "what is emitted meanwhile waits in the slot",
        slot->name, slot->active_pid));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RecordPrefixes(const InitOptions& options, SqlConnection* connection) {
  const std::vector<std::string>& prefixes = options.source.message_prefixes;
  ASSIGN_OR_RETURN(const auto recorded, ReadPrefixes(connection, options.name));
  if (recorded != prefixes) {
    RETURN_IF_ERROR(connection->Execute(RecordPrefixesSql(options)));
  }
  return absl::StrFormat("messages     %s %s",
                         prefixes.empty() ? "no prefix" : absl::StrJoin(prefixes, ", "),
                         recorded == prefixes ? "recorded before" : "recorded");
}

std::string RecordPrefixesSql(const InitOptions& options) {
  std::vector<std::string> literals;
  for (const std::string& prefix : options.source.message_prefixes) {
    literals.push_back(QuoteLiteral(prefix));
  }
  return absl::StrFormat("UPDATE walpost.pipeline SET prefixes = ARRAY[%s]::text[] WHERE name = %s",
                         absl::StrJoin(literals, ", "), QuoteLiteral(options.name));
}

}  // namespace walpost::operations
