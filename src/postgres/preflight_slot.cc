// The slot, and what walpost.pipeline remembers of it.
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "postgres/dead_letter_cells.h"
#include "postgres/failure.h"
#include "postgres/preflight.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;

constexpr char kPlugin[] = "pgoutput";

// A table of another layout, or one that was dropped meanwhile. Any other error, such as a lock on
// the table, says nothing about what is recorded.
bool IsNotOurs(std::string_view sqlstate) {
  return sqlstate == sqlstate::kUndefinedTable || sqlstate == sqlstate::kUndefinedColumn ||
         sqlstate == sqlstate::kInvalidSchemaName;
}

}  // namespace

std::string PreflightRun::SlotText() const {
  return absl::StrFormat("slot \"%s\" on %s", options_.slot, endpoint().ToString());
}

// Asked so that a missing table or right is an answer and not an error in the server's log.
std::optional<StreamEnd> PreflightRun::ReadRecord() {
  const Result readable = Query(
      "SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') "
      "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
      "WHERE n.nspname = 'walpost' AND c.relname = 'pipeline' AND c.relkind = 'r'");
  if (!readable.ok()) {
    return QueryFailure("looking for walpost.pipeline", readable.error(), endpoint());
  }
  if (readable.rows() == 0) {
    return std::nullopt;
  }
  if (!readable.True(0, 0)) {
    return Forbidden("walpost.pipeline", "what `walpost init` recorded");
  }
  const Result record = Query(absl::StrFormat(
      "SELECT name::text, slot::text, system_identifier::text, consistent_point::text, "
      "coalesce(backfilled, true), "
      "(SELECT string_agg(quote_literal(p), ', ') FROM unnest(prefixes) p "
      "WHERE p <> ALL (%1$s)), "
      "delivered_lsn::text, has_column_privilege(tableoid, 'delivered_lsn', "
      "'UPDATE') FROM walpost.pipeline WHERE slot = %2$s OR name = %3$s "
      "ORDER BY slot = %2$s AND name = %3$s DESC, slot = %2$s DESC, "
      "created_at DESC LIMIT 1",
      ArrayLiteral(options_.message_prefixes), QuoteLiteral(options_.slot),
      QuoteLiteral(options_.pipeline)));
  if (!record.ok()) {
    return IsNotOurs(record.error().sqlstate)
               ? std::nullopt
               : std::optional(
                     QueryFailure("reading walpost.pipeline", record.error(), endpoint()));
  }
  if (record.rows() == 1) {
    record_ = PipelineRecord{std::string(record.Text(0, 0)),
                             std::string(record.Text(0, 1)),
                             std::string(record.Text(0, 2)),
                             std::string(record.Text(0, 3)),
                             record.True(0, 4),
                             std::string(record.Text(0, 5))};
    facts().consistent_point = base::Lsn::Parse(record_->consistent_point).value_or(base::Lsn());
    report_.recorded_delivery =
        RecordedDelivery{record_->name, base::Lsn::Parse(record.Text(0, 6)).value_or(base::Lsn()),
                         record.True(0, 7)};
  }
  return std::nullopt;
}

// What may not be read may keep us from streaming.
StreamEnd PreflightRun::Forbidden(std::string_view table, std::string_view unknown) const {
  const std::string role = QuoteIdentifier(endpoint().user);
  return OperatorEnd(
      HaltReason::kAuthFailed,
      absl::StrFormat(
          "role %s may not read %s on %s, so it is not known %s: GRANT USAGE ON SCHEMA walpost TO "
          "%s; GRANT SELECT ON %s TO %s",
          role, table, endpoint().ToString(), unknown, role, table, role),
      std::string(sqlstate::kInsufficientPrivilege));
}

StreamEnd PreflightRun::SlotMissing() const {
  if (!record_.has_value()) {
    return OperatorEnd(HaltReason::kSlotMissing,
                       absl::StrFormat("%s does not exist: run `walpost init`", SlotText()));
  }
  if (!record_->backfilled &&
      !base::Lsn::Parse(record_->consistent_point).value_or(base::Lsn()).valid()) {
    return OperatorEnd(
        HaltReason::kInitIncomplete,
        absl::StrFormat("%s does not exist yet: run `walpost init --backfill` to its "
                        "end",
                        SlotText()));
  }
  const bool other_cluster =
      record_->system_identifier != std::to_string(report_.facts.system_identifier);
  return OperatorEnd(
      HaltReason::kSlotMissing,
      absl::StrFormat(
          "%s does not exist, but walpost.pipeline records it (pipeline \"%s\", consistent point "
          "%s%s): it was dropped or did not survive a failover, restore or upgrade, and events "
          "committed since are not in any stream: docs/runbook.md, slot_missing, says how to go "
          "on",
          SlotText(), record_->name,
          record_->consistent_point.empty() ? "unknown" : record_->consistent_point,
          other_cluster
              ? ", on another cluster with system identifier " + record_->system_identifier
              : ""));
}

std::optional<StreamEnd> PreflightRun::SlotStreams() {
  const Result active = Query(absl::StrFormat(
      "SELECT 1 FROM pg_catalog.pg_replication_slots WHERE slot_name = %s AND active",
      QuoteLiteral(options_.slot)));
  if (!active.ok()) {
    return QueryFailure("reading pg_replication_slots", active.error(), endpoint());
  }
  if (active.rows() == 0) {
    return LostEnd(absl::StrFormat("%s is not streamed from", SlotText()));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::Slot() {
  record_unread_ = ReadRecord();
  if (record_unread_.has_value()) {
    return record_unread_;
  }
  const char* const synced = version() >= 170000 ? "s.synced" : "false";
  const Result slot = Query(absl::StrFormat(
      "SELECT s.slot_type, s.plugin, s.database, s.active_pid, s.confirmed_flush_lsn, "
      "s.wal_status, %s, %s AND pg_is_in_recovery(), a.application_name, a.client_addr::text, "
      "s.restart_lsn, %s "
      "FROM pg_catalog.pg_replication_slots s "
      "LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid "
      "WHERE s.slot_name = %s",
      InvalidationReasonColumn(version()), synced, version() >= 140000 ? "s.two_phase" : "false",
      QuoteLiteral(options_.slot)));
  if (!slot.ok()) {
    return QueryFailure("reading pg_replication_slots", slot.error(), endpoint());
  }
  if (slot.rows() == 0) {
    const std::optional<StreamEnd> foreign = RecordOfAnother();
    return foreign ? foreign : SlotMissing();
  }
  if (!slot.IsNull(0, 3)) {
    active_pid_ = std::string(slot.Text(0, 3));
    active_user_text_ = absl::StrFormat(
        "PID %s (application_name \"%s\", client %s)", slot.Text(0, 3), slot.Text(0, 8),
        slot.IsNull(0, 9) ? std::string_view("local or not visible") : slot.Text(0, 9));
  }
  return JudgeSlot(slot);
}

// One of the two was edited.
std::optional<StreamEnd> PreflightRun::RecordOfAnother() const {
  if (!record_ || options_.pipeline.empty() ||
      (record_->name == options_.pipeline && record_->slot == options_.slot)) {
    return std::nullopt;
  }
  return OperatorEnd(
      HaltReason::kSlotForeign,
      absl::StrFormat("walpost.pipeline on %s records pipeline \"%s\" on slot \"%s\", and this is "
                      "pipeline \"%s\" on slot \"%s\": it would overlook what goes by the name "
                      "(progress, parked keys); correct `name` and `source.slot`",
                      endpoint().ToString(), record_->name, record_->slot, options_.pipeline,
                      options_.slot));
}

std::optional<StreamEnd> PreflightRun::JudgeSlot(const Result& slot) {
  if (slot.Text(0, 0) != "logical") {
    return OperatorEnd(HaltReason::kSlotForeign,
                       absl::StrFormat("%s is a %s slot, not a logical one: give walpost a slot of "
                                       "its own by source.slot, then run `walpost init`",
                                       SlotText(), slot.Text(0, 0)));
  }
  if (slot.Text(0, 1) != kPlugin) {
    return OperatorEnd(HaltReason::kSlotForeign,
                       absl::StrFormat("%s uses the plugin %s, not pgoutput: give walpost a slot "
                                       "of its own by source.slot, then run `walpost init`",
                                       SlotText(), slot.Text(0, 1)));
  }
  if (slot.True(0, 11)) {
    return OperatorEnd(
        HaltReason::kSlotForeign,
        absl::StrFormat("%s decodes prepared transactions (two_phase), which walpost does not "
                        "read: give walpost a slot of its own by source.slot, then run `walpost "
                        "init`",
                        SlotText()));
  }
  if (slot.Text(0, 2) != facts().database) {
    return OperatorEnd(
        HaltReason::kSlotForeign,
        absl::StrFormat("%s belongs to database \"%s\": correct the database in source.conninfo, "
                        "or give walpost a slot of its own by source.slot",
                        SlotText(), slot.Text(0, 2)));
  }
  if (std::optional<StreamEnd> foreign = RecordOfAnother()) {
    return foreign;
  }
  if (slot.Text(0, 5) == "lost" || !slot.IsNull(0, 6)) {
    return OperatorEnd(
        HaltReason::kSlotInvalidated,
        absl::StrFormat("%s was invalidated by the server (%s): what it had not delivered is not "
                        "in any stream: docs/runbook.md, slot_invalidated, says how to go on",
                        SlotText(),
                        slot.IsNull(0, 6)
                            ? std::string_view("wal_status lost, see max_slot_wal_keep_size")
                            : slot.Text(0, 6)));
  }
  if (slot.True(0, 7)) {
    return LostEnd(absl::StrFormat(
        "%s is a synchronized copy on a standby and cannot be streamed before promotion: list all "
        "hosts in source.conninfo with target_session_attrs=read-write",
        SlotText()));
  }
  if (slot.IsNull(0, 4)) {
    // Visible, but still being created: no consumer may have it yet.
    return active_pid_.empty()
               ? OperatorEnd(
                     HaltReason::kInitIncomplete,
                     absl::StrFormat("%s was never completed: run `walpost slot drop --yes` and "
                                     "`walpost init`",
                                     SlotText()))
               : std::optional<StreamEnd>();
  }
  const auto confirmed = base::Lsn::Parse(slot.Text(0, 4));
  facts().confirmed_flush_lsn = confirmed.ok() ? *confirmed : base::Lsn();
  const auto restart = base::Lsn::Parse(slot.Text(0, 10));
  facts().restart_lsn = restart.ok() ? *restart : base::Lsn();
  if (slot.Text(0, 5) == "unreserved") {
    report_.warnings.push_back(absl::StrFormat(
        "%s is about to be invalidated (wal_status unreserved): let walpost catch up or raise "
        "max_slot_wal_keep_size",
        SlotText()));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::SlotFree() {
  if (active_pid_.empty()) {
    return std::nullopt;
  }
  StreamEnd end = LostEnd(absl::StrFormat("%s is in use by %s", SlotText(), active_user_text_));
  end.kind = StreamEnd::Kind::kSlotInUse;
  end.sqlstate = sqlstate::kObjectInUse;
  return end;
}

std::optional<StreamEnd> PreflightRun::Record() {
  if (!record_.has_value()) {
    return record_unread_;
  }
  const std::string here = std::to_string(facts().system_identifier);
  if (!record_->system_identifier.empty() && record_->system_identifier != here) {
    return OperatorEnd(
        HaltReason::kClusterChanged,
        absl::StrFormat("%s is another cluster: its system identifier is %s, walpost.pipeline "
                        "records %s for pipeline \"%s\" (restored, cloned or upgraded?): correct "
                        "source.conninfo, or adopt this cluster as docs/runbook.md, "
                        "cluster_changed, says",
                        endpoint().ToString(), here, record_->system_identifier, record_->name));
  }
  if (!record_->backfilled) {
    return OperatorEnd(
        HaltReason::kInitIncomplete,
        absl::StrFormat(
            "the rows that were in the outbox tables of pipeline \"%s\" on %s before its slot are "
            "not all sent (walpost.pipeline says backfilled = false): run `walpost init "
            "--backfill` to its end. Where it names rows of which it is not known whether Kafka "
            "has "
            "them, --send-unproven sends those, too",
            record_->name, endpoint().ToString()));
  }
  if (!record_->prefixes_missing.empty()) {
    return OperatorEnd(
        HaltReason::kInitIncomplete,
        absl::StrFormat(
            "walpost.pipeline on %s records the message prefix %s for pipeline \"%s\", which is "
            "not "
            "in messages.prefixes: its events would be left out without a word; add it and "
            "restart, "
            "or, when nothing emits it any more, run `walpost init --with-messages`, which records "
            "the configured ones",
            endpoint().ToString(), record_->prefixes_missing, record_->name));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::RecordAgain() {
  if (auto problem = ReadRecord(); problem.has_value()) {
    return problem;
  }
  return Record();
}

std::optional<StreamEnd> PreflightRun::DeadLetters() {
  if (options_.dead_letters_elsewhere) {
    facts().may_have_dead_letters = true;  // who knows
    return std::nullopt;
  }
  const auto reject = [this](const std::string& why) {
    return OperatorEnd(HaltReason::kDeadLetterFailed,
                       absl::StrFormat("delivery.on_undeliverable writes dead letters, and %s: %s",
                                       endpoint().ToString(), why));
  };
  if (options_.writes_dead_letters && facts().in_recovery) {
    return reject(
        "is a standby, which cannot be written: name its primary with "
        "delivery.dead_letter_conninfo, or set delivery.on_undeliverable to halt or skip");
  }
  const Result table = Query(
      "SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), "
      "has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND "
      "has_table_privilege(c.oid, 'DELETE') AND coalesce((SELECT has_table_privilege(k.oid, "
      "'SELECT') AND has_table_privilege(k.oid, 'INSERT') AND has_table_privilege(k.oid, 'UPDATE') "
      "FROM pg_catalog.pg_class k WHERE k.relnamespace = c.relnamespace AND k.relname = "
      "'dead_letter_count'), false) FROM pg_catalog.pg_class c JOIN "
      "pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'walpost' AND "
      "c.relname = 'dead_letters' AND c.relkind = 'r'");
  if (!table.ok()) {
    return QueryFailure("looking for walpost.dead_letters", table.error(), endpoint());
  }
  const bool readable = table.rows() > 0 && table.True(0, 0);
  if (options_.writes_dead_letters && table.rows() == 0) {
    return reject(
        "has no table walpost.dead_letters: run `walpost init`, or apply "
        "sql/V1__walpost.up.sql");
  }
  if (options_.writes_dead_letters && !(readable && table.True(0, 1))) {
    return reject(
        "does not let walpost SELECT, INSERT, UPDATE and DELETE in walpost.dead_letters, and the "
        "first three in walpost.dead_letter_count: `walpost init --with-roles` (or "
        "sql/V1__walpost.up.sql and sql/R__roles.sql) makes both and grants it to outbox_relay");
  }
  if (table.rows() == 0) {
    return std::nullopt;
  }
  if (!readable) {
    return Forbidden("walpost.dead_letters", "which keys are parked");
  }
  const std::string of_ours = absl::StrFormat(
      "EXISTS (SELECT FROM walpost.dead_letters WHERE pipeline = %s AND system_identifier = "
      "(SELECT "
      "system_identifier FROM pg_catalog.pg_control_system()) AND ",
      QuoteLiteral(options_.pipeline));
  const Result rows = Query(absl::StrFormat(
      "SELECT %1$sclosed_at IS NULL) OR %1$s%2$s AND %3$s < '%4$s'), %1$s%5$s AND %3$s >= '%6$s')",
      of_ours, kSent, kCommitLsn, CommitLsnText(facts().restart_lsn), kOfThisLog,
      CommitLsnText(facts().confirmed_flush_lsn)));
  if (!rows.ok()) {
    return QueryFailure("reading walpost.dead_letters", rows.error(), endpoint());
  }
  facts().dead_letters_come_again = rows.True(0, 1);
  facts().may_have_dead_letters = rows.True(0, 0) || rows.True(0, 1);
  return std::nullopt;
}

}  // namespace walpost::postgres
