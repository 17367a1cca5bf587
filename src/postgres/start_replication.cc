#include "postgres/start_replication.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

constexpr int kBinaryAndMessagesSince = 140000;

std::string_view TakeField(std::string_view* line) {
  const std::size_t start = line->find_first_not_of(" \t");
  if (start == std::string_view::npos) {
    *line = std::string_view();
    return std::string_view();
  }
  line->remove_prefix(start);
  const std::size_t length = std::min(line->find_first_of(" \t"), line->size());
  const std::string_view field = line->substr(0, length);
  line->remove_prefix(length);
  return field;
}

}  // namespace

std::string StartReplicationCommand(const StartOptions& options) {
  // publication_names is a list of SQL identifiers inside a string of the replication grammar,
  // which knows doubled quotes and no escapes.
  std::string command = absl::StrFormat(
      "START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s",
      QuoteIdentifier(options.slot), options.start_lsn.ToString(),
      QuoteLiteral(QuoteIdentifier(options.publication)));
  if (options.server_version >= kBinaryAndMessagesSince) {
    command += options.text_values ? "" : ", binary 'true'";
    if (options.messages) {
      command += ", messages 'true'";
    }
  }
  return command + ")";
}

absl::StatusOr<std::vector<base::TimelineEnd>> ParseTimelineHistory(std::string_view content) {
  std::vector<base::TimelineEnd> history;
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    const std::string_view timeline = TakeField(&line);
    if (timeline.empty() || timeline.front() == '#') {
      continue;
    }
    base::TimelineEnd entry;
    const auto [stop, error] =
        std::from_chars(timeline.data(), timeline.data() + timeline.size(), entry.timeline);
    const absl::StatusOr<base::Lsn> lsn = base::Lsn::Parse(TakeField(&line));
    if (error != std::errc() || stop != timeline.data() + timeline.size() || !lsn.ok() ||
        (!history.empty() && entry.timeline <= history.back().timeline)) {
      return absl::DataLossError(
          absl::StrFormat("timeline history is unreadable after %d lines", history.size()));
    }
    entry.end = *lsn;
    history.push_back(entry);
  }
  return history;
}

}  // namespace walpost::postgres
