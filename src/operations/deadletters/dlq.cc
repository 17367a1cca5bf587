#include "operations/deadletters/dlq.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "envelope/position.h"
#include "operations/deadletters/skipped_note.h"
#include "operations/setup/pipeline_record.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

// docs/dead-letters.md, reason.
constexpr std::array<const char*, 19> kReasons = {
    "record_too_large",  "record_invalid",       "topic_unknown",   "partition_unknown",
    "topic_invalid",     "topic_not_authorized", "rejected",        "row_invalid",
    "topic_not_allowed", "header_invalid",       "payload_invalid", "cloudevent_invalid",
    "key_parked",        kTransactionsSkipped,   "schema_rejected", "schema_name_invalid",
    "event_too_large",   "message_malformed",    "id_too_long"};

}  // namespace

bool DeadLetterFilter::empty() const {
  return id.empty() && position.empty() && key.empty() && type.empty() && topic.empty() &&
         reason.empty() && !since_ms && !until_ms;
}

bool DeadLetterFilter::Matches(const base::DeadLetter& row) const {
  return (id.empty() || row.event_id == id) && (position.empty() || row.position == position) &&
         (key.empty() || row.key == key) && (type.empty() || row.event_type == type) &&
         (topic.empty() || row.topic == topic) && (reason.empty() || row.reason == reason) &&
         (!since_ms || row.written_at_ms >= *since_ms) &&
         (!until_ms || row.written_at_ms <= *until_ms);
}

absl::StatusOr<std::int64_t> ParseTime(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error) || time == absl::InfiniteFuture() ||
      time == absl::InfinitePast()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not a time: give RFC 3339, for example 2026-05-01T12:00:00Z, or how long ago, for "
        "example 90s, 15min, 2h or 7d",
        text));
  }
  return absl::ToUnixMillis(time);
}

absl::Status CheckFilter(const DeadLetterFilter& filter) {
  if (!filter.reason.empty() &&
      std::find(kReasons.begin(), kReasons.end(), filter.reason) == kReasons.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("no dead letter has the reason '%s'; the reasons are %s", filter.reason,
                        absl::StrJoin(kReasons, ", ")));
  }
  return filter.position.empty() ? absl::OkStatus()
                                 : envelope::Position::Parse(filter.position).status();
}

base::WallTime WallNow() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

absl::StatusOr<postgres::DeadLetterTable> OpenDeadLetters(const PipelineSettings& options) {
  const postgres::ConnectOptions& source = options.source;
  // While the source is away, dead letters that are elsewhere can still be looked at.
  auto connection = postgres::SqlConnection::Connect(source.conninfo, source.application_name);
  if (connection.ok()) {
    RETURN_IF_ERROR(CheckRecordFits(&*connection, options.name, source.slot));
  }
  if (options.dead_letter_conninfo.empty()) {
    return postgres::DeadLetterTable::Open(source.conninfo, source.application_name, options.name,
                                           {});
  }
  postgres::DeadLetterTable::Source streamed;
  if (connection.ok()) {
    ASSIGN_OR_RETURN(
        const std::vector<postgres::Row> rows,
        connection->Query(
            "SELECT system_identifier::text, current_database() FROM pg_control_system()"));
    std::int64_t identifier = 0;  // half of them show as negative
    if (absl::SimpleAtoi(rows.at(0).at(0).value_or(""), &identifier)) {
      streamed.system_identifier = static_cast<std::uint64_t>(identifier);
    }
    streamed.database = rows[0].at(1).value_or("");
  }
  return postgres::DeadLetterTable::Open(options.dead_letter_conninfo, source.application_name,
                                         options.name, streamed);
}

absl::StatusOr<std::optional<postgres::DeadLetterTable>> FindDeadLetters(
    const PipelineSettings& options) {
  absl::StatusOr<postgres::DeadLetterTable> table = OpenDeadLetters(options);
  if (absl::IsNotFound(table.status())) {
    return std::optional<postgres::DeadLetterTable>();
  }
  RETURN_IF_ERROR(table.status());
  return std::optional(*std::move(table));
}

}  // namespace walpost::operations
