#include "operations/setup/init.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/topics.h"
#include "operations/setup/init_sql.h"
#include "operations/setup/pipeline_record.h"
#include "operations/setup/slot_move.h"
#include "operations/trusted_owner.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using postgres::Row;
using postgres::SourceTable;
using postgres::SqlConnection;

// outbox.events is checked when the configuration is read.
absl::Status CheckIdColumn(const SourceTable& table) {
  const bool mapped =
      std::find(table.columns.begin(), table.columns.end(), "id") != table.columns.end();
  return mapped ? absl::OkStatus()
                : absl::FailedPreconditionError(absl::StrFormat(
                      "%1$s.events has its ids in id: %1$s.maintain finds a dead letter's row by "
                      "it, so outboxes[].columns.id must be id",
                      table.schema));
}

// One run of `init`: each step adds a line to what was done, or fails.
class Initializer {
 public:
  Initializer(const InitOptions& options, SqlConnection* connection)
      : options_(options), connection_(connection) {
    if (options_.backfill) {
      backfill_.emplace(*options_.backfill);
    }
  }

  // Before anything is changed.
  absl::Status Look() {
    // Before anything is read from them.
    RETURN_IF_ERROR(RequireTrustedSchemas(connection_, {"walpost", options_.table_schema}));
    RETURN_IF_ERROR(RequireNoCreators(connection_, {"walpost", options_.table_schema}));
    RETURN_IF_ERROR(RequireNoCode(connection_, {"walpost", options_.table_schema}));
    RETURN_IF_ERROR(LookAtHistory());
    if (options_.with_messages) {
      RETURN_IF_ERROR(CheckMessages(options_, connection_));
    }
    return RequireTrustedPublication(connection_, options_.source);
  }

  absl::Status Run() {
    RETURN_IF_ERROR(Look());
    RETURN_IF_ERROR(ApplySchema());
    RETURN_IF_ERROR(KeepOthersAway());
    RETURN_IF_ERROR(EnsurePublication());
    // Before the slot, which keeps WAL from the moment it is there.
    RETURN_IF_ERROR(EnsureTopics());
    RETURN_IF_ERROR(BeginRecord());
    RETURN_IF_ERROR(EnsureSlot());
    RETURN_IF_ERROR(EnsureRecord());
    RETURN_IF_ERROR(EnsurePrefixes());
    RETURN_IF_ERROR(EnsureRemembered());
    return EnsureBackfilled();
  }

  const std::string& done() const { return done_; }

  std::uint64_t curable_out() const { return backfill_ ? backfill_->curable_out() : 0; }

 private:
  void Say(const std::string& line) { done_ += line + "\n"; }

  absl::Status LookAtHistory() {
    ASSIGN_OR_RETURN(record_, FindRecord(connection_, options_.name, options_.source.slot));
    if (!options_.drop_slot) {  // else whatever is there is none
      ASSIGN_OR_RETURN(slot_, postgres::FindSlot(connection_, options_.source.slot));
    }
    ASSIGN_OR_RETURN(system_identifier_, ReadSystemIdentifier(connection_));
    if (record_) {
      RETURN_IF_ERROR(CheckRecord());
    }
    return slot_ ? JudgeSlot() : absl::OkStatus();
  }

  absl::Status CheckRecord() {
    RETURN_IF_ERROR(CheckFits(*record_, options_.name, options_.source.slot));
    if (record_->system_identifier != system_identifier_ && !options_.replaced) {
      return absl::FailedPreconditionError(
          absl::StrFormat("cluster_changed: pipeline '%s' was set up on cluster %s, this is %s: a "
                          "copy or a new cluster; see "
                          "docs/runbook.md, cluster_changed",
                          record_->name, record_->system_identifier, system_identifier_));
    }
    if (!record_->SlotWasMade()) {
      return backfill_ || options_.replaced ? absl::OkStatus() : SlotMissing(*record_);
    }
    return slot_ || options_.replaced ? absl::OkStatus() : SlotMissing(*record_);
  }

  absl::Status JudgeSlot() {
    if (slot_->plugin != "pgoutput" || slot_->database != connection_->database()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("slot_foreign: slot '%s' exists, but with plugin '%s' in database '%s'; "
                          "walpost needs pgoutput in "
                          "'%s': choose another source.slot, or drop it if nobody uses it",
                          slot_->name, slot_->plugin, slot_->database, connection_->database()));
    }
    if (slot_->lost()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "slot_invalidated: slot '%s' was invalidated by the server (%s) and can never be read "
          "again. See docs/runbook.md, slot_invalidated",
          slot_->name,
          slot_->invalidation_reason.empty() ? "wal_status lost" : slot_->invalidation_reason));
    }
    return absl::OkStatus();
  }

  absl::Status ApplySchema() {
    for (const SourceTable& table : options_.source.tables) {
      if (IsOwnTable(options_, table)) {
        RETURN_IF_ERROR(CheckIdColumn(table));
        continue;
      }
      ASSIGN_OR_RETURN(const std::vector<Row> found,
                       connection_->Query("SELECT to_regclass($1)::text", {TableSql(table)}));
      if (!found.at(0).at(0)) {
        return absl::FailedPreconditionError(
            absl::StrFormat("table %s.%s does not exist: create it first; init makes only "
                            "outbox.events of preset walpost, or events in the schema that "
                            "--schema names",
                            table.schema, table.table));
      }
    }
    ASSIGN_OR_RETURN(const std::vector<int> applied, AppliedIn(options_.table_schema, connection_));
    for (const SchemaFile& file : SchemaFiles(Choice(options_))) {
      if (std::find(applied.begin(), applied.end(), file.version) == applied.end()) {
        RETURN_IF_ERROR(base::Annotate(connection_->Execute(file.sql), file.name));
      }
    }
    if (Choice(options_).own_table) {
      RETURN_IF_ERROR(DropForeignNotes());
    }
    if (options_.with_roles) {
      RETURN_IF_ERROR(
          base::Annotate(connection_->Execute(RolesSql(options_.table_schema)), "R__roles.sql"));
    }
    Say("schema       ok");
    return Choice(options_).own_table ? MakeFirstPartitions() : absl::OkStatus();
  }

  // A dump brings along what outbox.maintain noted about the log of another cluster.
  absl::Status DropForeignNotes() {
    const std::string foreign =
        absl::StrFormat("FROM %s.retention_note WHERE system_identifier <> %s",
                        options_.table_schema, system_identifier_);
    ASSIGN_OR_RETURN(const std::vector<Row> found,
                     connection_->Query("SELECT count(*) " + foreign));
    if (found.at(0).at(0) == "0") {
      return absl::OkStatus();
    }
    Say(absl::StrFormat("retention    %s notes of another cluster removed",
                        found[0][0].value_or("")));
    return connection_->Query("DELETE " + foreign).status();
  }

  absl::Status MakeFirstPartitions() {
    ASSIGN_OR_RETURN(const std::vector<Row> made, connection_->Query(FirstPartitionsSql(options_)));
    if (made.at(0).at(0) != "0") {
      Say(absl::StrFormat("partitions   %s made; have %s.maintain() called every hour",
                          made[0][0].value_or(""), options_.table_schema));
    }
    return absl::OkStatus();
  }

  absl::Status EnsurePublication() {
    const std::string& publication = options_.source.publication;
    const absl::Status published = RequirePublished(connection_, options_.source);
    if (absl::IsNotFound(published)) {
      if (slot_) {
        return absl::FailedPreconditionError(
            absl::StrFormat("slot '%s' exists but publication '%s' does not: made now, it would be "
                            "missing at the positions the slot still has "
                            "to read, and streaming would fail for ever. See docs/runbook.md, "
                            "publication_missing",
                            options_.source.slot, publication));
      }
      RETURN_IF_ERROR(connection_->Execute(CreatePublicationSql(options_)));
      Say(absl::StrFormat("publication  %s created", publication));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(published);
    Say(absl::StrFormat("publication  %s exists", publication));
    return absl::OkStatus();
  }

  absl::Status EnsureTopics() {
    if (options_.progress_topic.empty()) {
      Say("progress     not remembered (delivery.progress_topic is empty)");
    } else {
      RETURN_IF_ERROR(EnsureTopic("progress    ", kafka::ProgressTopic(options_.progress_topic)));
    }
    if (options_.dead_letter_topic.empty()) {
      return absl::OkStatus();
    }
    return EnsureTopic("dead letters", kafka::DeadLetterTopic(options_.dead_letter_topic));
  }

  absl::Status EnsureTopic(const char* purpose, const kafka::TopicSpec& topic) {
    ASSIGN_OR_RETURN(const kafka::Ensured ensured,
                     kafka::EnsureTopic(options_.kafka, topic, options_.kafka_timeout));
    Say(absl::StrFormat("%s topic %s %s", purpose, topic.name,
                        ensured == kafka::Ensured::kCreated ? "created" : "exists"));
    return absl::OkStatus();
  }

  // Who makes a slot or a record is alone from here on, and what was seen before counts no more.
  absl::Status KeepOthersAway() {
    if (!backfill_ && !options_.drop_slot && record_) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(lock_, RowsLock::Take(options_.source));
    return options_.drop_slot ? absl::OkStatus() : LookAtHistory();
  }

  // A first backfill is recorded before its slot is there: from then on nobody streams from that
  // one, and outbox.maintain keeps the rows, wherever this is interrupted.
  absl::Status BeginRecord() {
    if (!backfill_ || options_.drop_slot || (record_ && record_->SlotWasMade())) {
      return absl::OkStatus();
    }
    if (slot_ && !record_) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "slot '%s' is there without a record of the snapshot it was made in, so which rows its "
          "stream will bring is not known: `walpost slot drop --yes`, then run this again",
          slot_->name));
    }
    if (slot_) {
      // Of an attempt that was interrupted: nobody has streamed from it, and its snapshot is not
      // known.
      RETURN_IF_ERROR(postgres::DropSlot(connection_, slot_->name));
      slot_.reset();
    }
    record_.reset();
    return Replace({options_.name, options_.source.slot, options_.source.publication,
                    system_identifier_, base::Lsn().ToString(), /*snapshot=*/std::nullopt,
                    /*backfilled=*/false, /*gap=*/std::nullopt});
  }

  absl::Status EnsureSlot() {
    if (slot_) {
      if (!record_ && !options_.take_slot) {
        RETURN_IF_ERROR(RequireOlderThanSlot(connection_, options_.source));
      }
      consistent_point_ = slot_->confirmed_flush_lsn.ToString();
      Say(absl::StrFormat("slot         %s exists, confirmed up to %s", slot_->name,
                          consistent_point_));
      return absl::OkStatus();
    }
    postgres::CreateSlotOptions create;
    create.conninfo = options_.source.conninfo;
    create.slot = options_.source.slot;
    create.application_name = options_.source.application_name;
    create.timeout = options_.slot_timeout;
    if (backfill_) {
      holds_tables_ = true;
      RETURN_IF_ERROR(backfill_->HoldTables(connection_, options_.slot_timeout));
      create.on_snapshot = [this](const std::string& snapshot) {
        return backfill_->OpenIn(snapshot);
      };
    }
    if (options_.drop_slot) {
      ASSIGN_OR_RETURN(const auto old, postgres::FindSlot(connection_, create.slot));
      if (old && !old->lost()) {
        create.drop_old = [this] { return DropOld(); };
      } else {
        RETURN_IF_ERROR(DropOld());
      }
    }
    ASSIGN_OR_RETURN(const postgres::CreatedSlot created, postgres::CreateSlot(create));
    consistent_point_ = created.consistent_point.ToString();
    snapshot_ = created.snapshot;
    Say(absl::StrFormat("slot         %s created at %s", create.slot, consistent_point_));
    return absl::OkStatus();
  }

  absl::Status DropOld() {
    RETURN_IF_ERROR(lock_->Check());  // else it may be the new one of somebody else
    ASSIGN_OR_RETURN(const bool dropped, options_.drop_slot());
    if (dropped) {
      Say(absl::StrFormat("slot         %s dropped", options_.source.slot));
    }
    return absl::OkStatus();
  }

  absl::Status EnsureRecord() {
    const bool keep = record_ && !options_.replaced;
    if (lock_) {
      RETURN_IF_ERROR(lock_->Check());
    }
    // An attempt that is interrupted in between is begun anew, as long as the record has no
    // snapshot of the new slot; after that the gap is only sent, and streaming must be able to
    // begin there.
    if (record_ && options_.replaced) {
      RETURN_IF_ERROR(options_.replaced());
    }
    if (!keep) {
      std::optional<std::string> gap;
      if (backfill_ && options_.backfill->gap) {
        gap = options_.backfill->gap->ToJson();
      }
      RETURN_IF_ERROR(Replace({options_.name, options_.source.slot, options_.source.publication,
                               system_identifier_, consistent_point_, snapshot_,
                               /*backfilled=*/!backfill_, gap}));
    }
    Say(absl::StrFormat("pipeline     %s %s", options_.name,
                        keep ? "was set up before" : "recorded"));
    return !record_ && options_.replaced ? options_.replaced() : absl::OkStatus();
  }

  // Unless something was streamed since.
  absl::Status EnsureRemembered() {
    const bool at_begin = !record_ || record_->consistent_point == consistent_point_;
    return at_begin && !options_.replaced ? RememberBeginning(options_) : absl::OkStatus();
  }

  // With the dead letters of the cluster before, or nobody could decide about them any more. Ends
  // what holds the tables: from here on the record keeps outbox.maintain away.
  absl::Status Replace(const PipelineRecord& record) {
    if (!holds_tables_) {
      RETURN_IF_ERROR(connection_->Execute("BEGIN"));
    }
    absl::StatusOr<std::uint64_t> taken = 0;
    if (record_) {
      taken = TakeOverDeadLetters(connection_, *record_);
    }
    absl::Status done = taken.status();
    if (done.ok()) {
      done = WriteRecord(connection_, record);
    }
    RETURN_IF_ERROR(connection_->EndTransaction(done));
    if (*taken > 0) {
      done_ += TakenOver(*record_, *taken);
    }
    return absl::OkStatus();
  }

  absl::Status EnsureBackfilled() {
    if (options_.replaced) {
      return backfill_ ? RunBackfill() : absl::OkStatus();
    }
    if (!backfill_) {
      return record_ && !record_->backfilled
                 ? absl::FailedPreconditionError(
                       "init_incomplete: the rows that were there before the slot are not all "
                       "sent: run `walpost init --backfill` to its end, with --send-unproven where "
                       "it says so")
                 : absl::OkStatus();
    }
    if (record_ && record_->backfilled) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "pipeline '%s' was set up before, and its rows from before the slot were sent then, or "
          "left out: `walpost replay --missing` finds and sends what Kafka lacks",
          record_->name));
    }
    return RunBackfill();
  }

  absl::Status RunBackfill() {
    ASSIGN_OR_RETURN(const std::string lines, backfill_->Run(&*lock_));
    done_ += lines;
    return absl::OkStatus();
  }

  // From here on events are emitted, and the slot keeps them.
  absl::Status EnsurePrefixes() {
    if (options_.revoke_emit) {
      RETURN_IF_ERROR(RevokeEmit(options_, connection_));
      Say("emitting     only roles with a grant may emit messages");
    }
    if (options_.with_messages) {
      ASSIGN_OR_RETURN(const std::string line, RecordPrefixes(options_, connection_));
      Say(line);
    }
    return absl::OkStatus();
  }

  const InitOptions& options_;
  SqlConnection* const connection_;
  std::string done_;
  std::optional<PipelineRecord> record_;
  std::optional<postgres::SlotInfo> slot_;
  std::string system_identifier_;
  std::string consistent_point_;
  std::optional<std::string> snapshot_;
  std::optional<Backfill> backfill_;
  std::optional<RowsLock> lock_;
  bool holds_tables_ = false;  // connection_ is in a transaction of Backfill::HoldTables
};

}  // namespace

absl::Status CheckInit(const InitOptions& options) {
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(options.source.conninfo, options.source.application_name));
  return Initializer(options, &connection).Look();
}

Outcome Init(const InitOptions& options) {
  if (options.print_sql) {
    return Outcome{0, PrintSql(options), "", /*as_it_is=*/true};
  }
  absl::StatusOr<SqlConnection> connection =
      SqlConnection::Connect(options.source.conninfo, options.source.application_name);
  if (!connection.ok()) {
    return Failed(connection.status());
  }
  Initializer initializer(options, &*connection);
  const absl::Status status = initializer.Run();
  Outcome outcome = status.ok() ? Done(initializer.curable_out()) : Failed(status);
  outcome.output = initializer.done();
  return outcome;
}

}  // namespace walpost::operations
