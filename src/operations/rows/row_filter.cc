#include "operations/rows/row_filter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "operations/rows/confirmed.h"
#include "operations/setup/pipeline_record.h"

namespace walpost::operations {
namespace {

using postgres::QuoteLiteral;
using postgres::SqlConnection;

std::string TimeSql(std::int64_t milliseconds) {
  return absl::StrFormat("to_timestamp(%d.%03d)", milliseconds / 1000, milliseconds % 1000);
}

}  // namespace

std::string NameOf(const envelope::OutboxOptions& outbox) {
  return outbox.table.schema + "." + outbox.table.table;
}

absl::StatusOr<std::string> RowFilter::Where(const RowReader& reader,
                                             const outbox::TableOptions& options) const {
  std::string where = "true";
  const auto column = [&](const outbox::ColumnNames& names, const char* option,
                          std::string* name) -> absl::Status {
    *name = reader.Column(names);
    return name->empty() ? absl::InvalidArgumentError(
                               absl::StrFormat("table %s.%s has no column that %s could be about",
                                               options.schema, options.table, option))
                         : absl::OkStatus();
  };
  if ((from_ms || to_ms) && !reader.HasTimes()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "table %s.%s has no column created_at of type timestamptz, which --from and --to are about",
        options.schema, options.table));
  }
  if (from_ms) {
    where += " AND t.created_at >= " + TimeSql(*from_ms);
  }
  if (to_ms) {
    where += " AND t.created_at < " + TimeSql(*to_ms);
  }
  std::string name;
  if (!ids.empty()) {
    RETURN_IF_ERROR(column(options.columns.id, "--id", &name));
    std::vector<std::string> quoted;
    for (const std::string& id : ids) {
      quoted.push_back(QuoteLiteral(id));
    }
    where += absl::StrFormat(" AND %s IN (%s)", name, absl::StrJoin(quoted, ", "));
  }
  if (!key.empty()) {
    RETURN_IF_ERROR(column(options.columns.key, "--key", &name));
    where += absl::StrFormat(" AND %s = %s", name, QuoteLiteral(key));
  }
  if (!type.empty()) {
    RETURN_IF_ERROR(column(options.columns.type, "--type", &name));
    where += absl::StrFormat(" AND %s = %s", name, QuoteLiteral(type));
  }
  return where;
}

absl::StatusOr<std::vector<std::uint32_t>> TablesOf(
    const RowFilter& filter, const std::vector<envelope::OutboxOptions>& outboxes) {
  std::vector<std::uint32_t> sources;
  std::vector<std::string> names;
  for (std::uint32_t source = 0; source < outboxes.size(); ++source) {
    names.push_back(NameOf(outboxes[source]));
    if (filter.table.empty() || filter.table == names.back()) {
      sources.push_back(source);
    }
  }
  if (sources.empty()) {
    return absl::InvalidArgumentError(
        names.empty()
            ? "no outbox table is configured, and messages stand in none"
            : absl::StrFormat("--table %s is not among the configured outboxes, which are %s",
                              filter.table, absl::StrJoin(names, ", ")));
  }
  return sources;
}

absl::StatusOr<RowReader> BeginReading(const RowsElsewhere& standby,
                                       const postgres::ConnectOptions& server,
                                       const envelope::OutboxOptions& outbox, std::uint32_t source,
                                       envelope::SchemaTable* schemas, base::Lsn* end) {
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(standby.conninfo.empty() ? server.conninfo : standby.conninfo,
                             server.application_name));
  if (!server.pipeline.empty()) {
    RETURN_IF_ERROR(CheckRecordFits(&connection, server.pipeline, server.slot));
  }
  if (!standby.conninfo.empty()) {
    RETURN_IF_ERROR(AwaitReplayed(&connection, server, standby.wait));
  }
  ASSIGN_OR_RETURN(RowReader reader, RowReader::Create(std::move(connection), server.publication,
                                                       outbox, source, schemas));
  ASSIGN_OR_RETURN(*end, EndOfSnapshot(reader.connection()));
  return reader;
}

}  // namespace walpost::operations
