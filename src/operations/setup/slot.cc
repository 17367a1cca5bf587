#include "operations/setup/slot.h"

#include <poll.h>
#include <nlohmann/json.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "operations/reconcile/retention_note.h"
#include "operations/setup/pipeline_record.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SqlConnection;
using std::chrono::steady_clock;

constexpr int kLookAgainMs = 100;

// By the transaction: who runs it. Who writes holds this lock on the root, and one that has ended
// was visible before it gave it up. Any role may read these columns.
absl::StatusOr<std::map<std::string, std::string>> OpenTransactions(
    SqlConnection* connection, const PipelineSettings& pipeline) {
  std::vector<std::string> tables;
  for (const envelope::OutboxOptions& outbox : pipeline.outboxes) {
    tables.push_back(QuoteIdentifier(outbox.table.schema) + "." +
                     QuoteIdentifier(outbox.table.table));
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(absl::StrFormat(
          "WITH RECURSIVE tree (oid) AS ("
          "SELECT to_regclass(name)::oid FROM unnest(%s::text[]) AS names (name) "
          "UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid) "
          "SELECT DISTINCT l.virtualtransaction, "
          "coalesce('process ' || l.pid || ' of ' || a.usename, "
          "(SELECT 'prepared as ' || min(p.gid) FROM pg_prepared_xacts p "
          "JOIN pg_locks own ON own.transactionid = p.transaction AND own.pid IS NULL "
          "WHERE own.virtualtransaction = l.virtualtransaction)) "
          "FROM tree JOIN pg_locks l ON l.relation = tree.oid "
          "JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() "
          "LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
          "WHERE l.mode = 'RowExclusiveLock' AND l.granted",
          postgres::ArrayLiteral(tables))));
  std::map<std::string, std::string> open;
  for (const Row& row : rows) {
    open.emplace(row.at(0).value_or(""), row.at(1).value_or(""));
  }
  return open;
}

absl::Status StillOpen(const std::map<std::string, std::string>& open) {
  return absl::DeadlineExceededError(absl::StrFormat(
      "%s was open when this began and has written to an outbox, perhaps rows that the stream left "
      "out; wait until it has ended, or end it, and run this again",
      absl::StrJoin(open, ", ", [](std::string* text, const auto& each) {
        absl::StrAppendFormat(text, "the transaction of %s", each.second);
      })));
}

}  // namespace

absl::Status AwaitOpenTransactions(const PipelineSettings& pipeline,
                                   std::chrono::milliseconds patience) {
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(pipeline.source.conninfo, pipeline.source.application_name));
  const auto deadline = steady_clock::now() + patience;
  ASSIGN_OR_RETURN(auto open, OpenTransactions(&connection, pipeline));
  while (!open.empty()) {
    if (steady_clock::now() >= deadline) {
      return StillOpen(open);
    }
    poll(nullptr, 0, kLookAgainMs);
    ASSIGN_OR_RETURN(const auto now, OpenTransactions(&connection, pipeline));
    std::erase_if(open, [&now](const auto& each) { return !now.contains(each.first); });
  }
  return absl::OkStatus();
}

namespace {

using postgres::SlotInfo;

std::string SlotsAsJson(const std::vector<SlotInfo>& slots) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SlotInfo& slot : slots) {
    nlohmann::ordered_json item;
    item["name"] = slot.name;
    item["plugin"] = slot.plugin;
    item["type"] = slot.type;
    item["database"] = slot.database;
    item["active"] = slot.active;
    item["active_pid"] = slot.active_pid;
    item["restart_lsn"] = slot.restart_lsn.ToString();
    item["confirmed_flush_lsn"] = slot.confirmed_flush_lsn.ToString();
    item["wal_status"] = slot.wal_status;
    item["safe_wal_size"] =
        slot.safe_wal_size ? nlohmann::ordered_json(*slot.safe_wal_size) : nlohmann::ordered_json();
    item["retained_bytes"] = slot.retained_bytes ? nlohmann::ordered_json(*slot.retained_bytes)
                                                 : nlohmann::ordered_json();
    item["invalidation_reason"] = slot.invalidation_reason;
    list.push_back(item);
  }
  return base::JsonText(list, 2) + "\n";
}

std::string SlotsAsText(const std::vector<SlotInfo>& slots) {
  std::string text = absl::StrFormat("%-24s %-10s %-16s %-8s %-14s %-14s %-10s\n", "NAME", "PLUGIN",
                                     "DATABASE", "ACTIVE", "CONFIRMED", "RETAINED", "WAL");
  for (const SlotInfo& slot : slots) {
    text += absl::StrFormat(
        "%-24s %-10s %-16s %-8s %-14s %-14s %-10s\n", slot.name,
        slot.plugin.empty() ? "-" : slot.plugin, slot.database.empty() ? "-" : slot.database,
        slot.active ? absl::StrFormat("pid %d", slot.active_pid) : "no",
        slot.confirmed_flush_lsn.ToString(),
        slot.retained_bytes
            ? absl::StrFormat("%.1f MiB", static_cast<double>(*slot.retained_bytes) / 1048576)
            : "-",
        slot.wal_status);
  }
  return text;
}

absl::StatusOr<std::string> Create(const InitOptions& options) {
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(options.source.conninfo, options.source.application_name));
  ASSIGN_OR_RETURN(const auto record, FindRecord(&connection, options.name, options.source.slot));
  if (record) {
    RETURN_IF_ERROR(CheckFits(*record, options.name, options.source.slot));
    ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(&connection, record->slot));
    return slot
               ? absl::AlreadyExistsError(absl::StrFormat("slot '%s' exists already", record->slot))
               : SlotMissing(*record);
  }
  const absl::Status published = RequirePublished(&connection, options.source);
  if (absl::IsNotFound(published)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "publication '%s' does not exist, and it must before the slot: run `walpost init`",
        options.source.publication));
  }
  RETURN_IF_ERROR(published);
  postgres::CreateSlotOptions create;
  create.conninfo = options.source.conninfo;
  create.slot = options.source.slot;
  create.application_name = options.source.application_name;
  create.timeout = options.slot_timeout;
  ASSIGN_OR_RETURN(const postgres::CreatedSlot created, postgres::CreateSlot(create));
  return absl::StrFormat("slot %s created at %s; `walpost init` records it\n", create.slot,
                         created.consistent_point.ToString());
}

}  // namespace

Outcome SlotList(const postgres::ConnectOptions& source, bool json) {
  absl::StatusOr<SqlConnection> connection =
      SqlConnection::Connect(source.conninfo, source.application_name);
  if (!connection.ok()) {
    return Failed(connection.status());
  }
  const absl::StatusOr<std::vector<SlotInfo>> slots = postgres::ListSlots(&*connection);
  if (!slots.ok()) {
    return Failed(slots.status());
  }
  return Outcome{0, json ? SlotsAsJson(*slots) : SlotsAsText(*slots), "", json};
}

Outcome SlotCreate(const InitOptions& options) {
  const absl::StatusOr<std::string> created = Create(options);
  return created.ok() ? Outcome{0, *created, ""} : Failed(created.status());
}

Outcome SlotDrop(const InitOptions& options, bool confirmed) {
  absl::StatusOr<SqlConnection> connection =
      SqlConnection::Connect(options.source.conninfo, options.source.application_name);
  if (!connection.ok()) {
    return Failed(connection.status());
  }
  const absl::StatusOr<std::optional<SlotInfo>> slot =
      postgres::FindSlot(&*connection, options.source.slot);
  if (!slot.ok()) {
    return Failed(slot.status());
  }
  if (!*slot) {
    return Failed(
        absl::NotFoundError(absl::StrFormat("slot '%s' does not exist", options.source.slot)));
  }
  const std::string lost = absl::StrFormat(
      "slot %s is confirmed up to %s: every event committed after that and not yet in Kafka is "
      "lost from the stream\n",
      options.source.slot, (*slot)->confirmed_flush_lsn.ToString());
  if (!confirmed) {
    return Outcome{kExitUsage, lost, "nothing was dropped; add --yes to drop it"};
  }
  if (const absl::Status idle = RowsLock::RequireFree(&*connection); !idle.ok()) {
    return Failed(idle);
  }
  if (const absl::Status dropped = postgres::DropSlot(&*connection, options.source.slot);
      !dropped.ok()) {
    return Failed(dropped);
  }
  return Outcome{0, lost + "dropped\n", ""};
}

}  // namespace walpost::operations
