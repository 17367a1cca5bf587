#include "operations/reconcile/backfill.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "kafka/topic_look_up.h"
#include "kafka/topics.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/reconcile/reconciliation.h"
#include "operations/reconcile/retention_note.h"
#include "operations/reconcile/settled_rows.h"
#include "operations/rows/row_reader.h"
#include "postgres/failure.h"

namespace walpost::operations {
namespace {

using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
using postgres::Row;
using postgres::SqlConnection;
using Reading = RowReader::Reading;

constexpr std::chrono::milliseconds kPolicyWait{5'000};  // for each answer

}  // namespace

std::string Gap::ToJson() const {
  nlohmann::json json{{"cluster", cluster}, {"from", from.ToString()}, {"notes", notes.ToString()}};
  if (since_ms) {
    json["since_ms"] = *since_ms;
  }
  return base::JsonText(json);
}

absl::StatusOr<Gap> Gap::FromJson(const std::string& text, const std::string& here) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("from") || !json["from"].is_string()) {
    return absl::DataLossError("walpost.pipeline.backfill cannot be read: somebody has edited it");
  }
  Gap gap;
  gap.cluster = here;
  if (json.contains("since_ms") && json["since_ms"].is_number_integer()) {
    gap.since_ms = json["since_ms"].get<std::int64_t>();
  }
  if (!json.contains("cluster") || json["cluster"] != here) {
    return gap;  // a dump has brought it: positions of another log say nothing here
  }
  ASSIGN_OR_RETURN(gap.from, base::Lsn::Parse(json["from"].get<std::string>()));
  if (json.contains("notes") && json["notes"].is_string()) {
    ASSIGN_OR_RETURN(gap.notes, base::Lsn::Parse(json["notes"].get<std::string>()));
  }
  return gap;
}

Backfill::Backfill(const BackfillOptions& options) : options_(options), gap_(options.gap) {}

std::string Backfill::NameAt(std::uint32_t source) const {
  return NameOf(options_.pipeline.outboxes[source]);
}

void Backfill::ReportProgress(const std::string& what, std::uint64_t done, std::uint64_t of) const {
  if (options_.on_progress) {
    options_.on_progress(what, done, of);
  }
}

// A snapshot keeps rows that are deleted, but not a table that is dropped. Nor does it help who
// goes on after an interruption: he reads the table again.
absl::Status Backfill::HoldTables(SqlConnection* connection,
                                  std::chrono::milliseconds timeout) const {
  RETURN_IF_ERROR(connection->Execute(
      absl::StrFormat("SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL READ "
                      "COMMITTED; SET LOCAL lock_timeout = %d",
                      timeout.count())));
  // In the order in which outbox.maintain takes them.
  for (const envelope::OutboxOptions& outbox : options_.pipeline.outboxes) {
    RETURN_IF_ERROR(KeepRetentionAway(connection, outbox.table));
  }
  for (const envelope::OutboxOptions& outbox : options_.pipeline.outboxes) {
    const absl::Status locked = connection->Execute(
        absl::StrFormat("LOCK TABLE %s.%s IN ACCESS SHARE MODE",
                        QuoteIdentifier(outbox.table.schema), QuoteIdentifier(outbox.table.table)));
    if (connection->last_sqlstate() == postgres::sqlstate::kLockNotAvailable) {
      return absl::DeadlineExceededError(
          absl::StrFormat("another transaction has locked %s and did not end in time; see "
                          "sql/runbook/long_transactions.sql, then run this again",
                          NameOf(outbox)));
    }
    RETURN_IF_ERROR(locked);
  }
  return connection->Execute("SET LOCAL lock_timeout TO DEFAULT");
}

absl::StatusOr<RowReader> Backfill::NewReader(std::uint32_t source, const std::string& snapshot) {
  const postgres::ConnectOptions& server = options_.pipeline.source;
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(server.conninfo, server.application_name));
  return RowReader::Create(std::move(connection), options_.pipeline, source, &schemas_, snapshot);
}

absl::Status Backfill::OpenIn(const std::string& snapshot) {
  for (std::uint32_t source = 0; source < options_.pipeline.outboxes.size(); ++source) {
    ASSIGN_OR_RETURN(RowReader reader, NewReader(source, snapshot));
    std::string where = "true";
    if (gap_) {
      ASSIGN_OR_RETURN(where, Bound(source, reader, reader.connection()));
    }
    RETURN_IF_ERROR(reader.Open(where, gap_ || options_.pipeline.outboxes.size() > 1
                                           ? Reading::kTwice
                                           : Reading::kInOrder));
    tables_[source].settled_rows.settled.assign(reader.count(), false);
    readers_.emplace(source, std::move(reader));
  }
  return gap_ ? absl::OkStatus() : CheckKeys();  // of a gap once it is known what is sent
}

absl::StatusOr<std::string> Backfill::Bound(std::uint32_t source, const RowReader& reader,
                                            SqlConnection* connection) {
  if (gap_->since_ms) {
    RowFilter filter;
    filter.from_ms = gap_->since_ms;
    return filter.Where(reader, options_.pipeline.outboxes[source].table);
  }
  if (!gap_->notes.valid() || !reader.HasTransactionIds()) {
    return "true";
  }
  ASSIGN_OR_RETURN(
      const RetentionNote note,
      FindRetentionNote(connection, options_.pipeline.outboxes[source].table, gap_->notes));
  note_warnings_[source] = note.warning;
  return note.settled.empty() ? "true" : absl::StrFormat("(%s) IS NOT TRUE", note.settled);
}

absl::StatusOr<std::string> Backfill::Run(RowsLock* lock) {
  const postgres::ConnectOptions& server = options_.pipeline.source;
  lock_ = lock;
  ASSIGN_OR_RETURN(connection_, SqlConnection::Connect(server.conninfo, server.application_name));
  RETURN_IF_ERROR(ReadPlace());
  RETURN_IF_ERROR(CheckRest());
  std::string text;
  for (std::uint32_t source = 0; source < options_.pipeline.outboxes.size(); ++source) {
    RETURN_IF_ERROR(Look(source));
  }
  RETURN_IF_ERROR(CheckKeys());
  for (std::uint32_t source = 0; source < options_.pipeline.outboxes.size(); ++source) {
    ASSIGN_OR_RETURN(const std::string line, Send(source));
    text += line;
  }
  RETURN_IF_ERROR(lock->EndWith(
      "UPDATE walpost.pipeline SET backfilled = true, backfill = NULL WHERE name = $1 AND snapshot "
      "= $2 RETURNING name",
      {options_.pipeline.name, snapshot_}));
  return text;
}

absl::Status Backfill::Judge(const std::string& doubt) const {
  return doubt.empty() || options_.send_unproven ? absl::OkStatus()
                                                 : absl::FailedPreconditionError(doubt);
}

absl::Status Backfill::CheckGap() {
  RETURN_IF_ERROR(CheckIds());
  return CheckTopics();
}

// What the table, and the topics, say before the slot is dropped that has the rows in their order.
absl::Status Backfill::CheckRows() {
  for (std::uint32_t source = 0;
       source < options_.pipeline.outboxes.size() && !options_.send_unproven; ++source) {
    absl::StatusOr<RowReader> reader = NewReader(source);
    if (absl::IsNotFound(reader.status())) {
      continue;
    }
    RETURN_IF_ERROR(base::Annotate(reader.status(), NameAt(source)));
    ASSIGN_OR_RETURN(const std::string where, Bound(source, *reader, reader->connection()));
    RETURN_IF_ERROR(reader->Open(where, Reading::kTwice));
    readers_.emplace(source, *std::move(reader));
    RETURN_IF_ERROR(base::Annotate(FindSettled(source), NameAt(source)));
    RETURN_IF_ERROR(base::Annotate(Judge(tables_[source].settled_rows.doubt), NameAt(source)));
  }
  RETURN_IF_ERROR(CheckKeys());
  readers_.clear();
  return absl::OkStatus();
}

absl::Status Backfill::CheckKeys() {
  if (options_.send_unproven) {
    return absl::OkStatus();
  }
  std::vector<RowsToSend> tables;
  for (auto& [source, reader] : readers_) {
    tables.push_back({NameAt(source), &reader, &tables_[source].settled_rows.settled});
  }
  ASSIGN_OR_RETURN(const std::string shared, SharedKeysText(tables, options_.temp_folder));
  return Judge(shared);
}

absl::Status Backfill::CheckIds() {
  ASSIGN_OR_RETURN(shared_ids_, SharedIds::Read(options_.pipeline));
  std::vector<std::string> tables;
  for (std::uint32_t source = 0; source < options_.pipeline.outboxes.size(); ++source) {
    tables.push_back(NameAt(source));
  }
  return Judge(shared_ids_.TextAbout(tables));
}

// Rows that are written after this are compared again when they are sent.
absl::Status Backfill::CheckTopics() {
  RETURN_IF_ERROR(
      Framer(options_.pipeline.registry, envelope::FramingsOf(options_.pipeline.outboxes)).Open());
  ASSIGN_OR_RETURN(std::set<std::string> topics, TopicsOfGap());
  ASSIGN_OR_RETURN(const kafka::UnseenTopics unseen,
                   FindUnseen(options_.pipeline, {topics.begin(), topics.end()}));
  for (const auto& [topic, why] : unseen) {
    topics.erase(topic);
  }
  const auto hidden = kafka::TopicsNotToRead(
      options_.pipeline.kafka, {topics.begin(), topics.end()}, options_.pipeline.kafka_timeout);
  RETURN_IF_ERROR(hidden.status());
  if (!hidden->empty()) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "walpost's Kafka user may not READ topic %s, so it is not known which events Kafka has: "
        "grant it; nothing was changed",
        absl::StrJoin(*hidden, ", ")));
  }
  if (options_.send_unproven) {
    return absl::OkStatus();
  }
  const absl::Status known =
      kafka::CheckCompactionIsKnown(options_.pipeline.kafka, topics, kPolicyWait);
  return absl::IsFailedPrecondition(known) ? Judge(CompactionDoubt(std::string(known.message())))
                                           : known;
}

absl::StatusOr<std::set<std::string>> Backfill::TopicsOfGap() {
  std::set<std::string> topics;
  for (std::uint32_t source = 0; source < options_.pipeline.outboxes.size(); ++source) {
    absl::StatusOr<RowReader> reader = NewReader(source);
    if (absl::IsNotFound(reader.status())) {
      continue;  // `init` makes it, or names it
    }
    RETURN_IF_ERROR(base::Annotate(reader.status(), NameAt(source)));
    ASSIGN_OR_RETURN(const std::string where, Bound(source, *reader, reader->connection()));
    RETURN_IF_ERROR(reader->Open(where, Reading::kAsTheyLie));
    RETURN_IF_ERROR(reader->ForEach([&](const ReadRow& row) {
      ReportProgress("topics of " + NameAt(source), row.number + 1, reader->count());
      if (row.record.ok()) {
        topics.emplace(row.record->topic);
      }
      return absl::OkStatus();
    }));
  }
  return topics;
}

// What is sent for the first time is compared with nothing.
absl::Status Backfill::CheckRest() {
  bool begun = gap_.has_value();
  for (std::uint32_t source = 0; source < options_.pipeline.outboxes.size(); ++source) {
    ASSIGN_OR_RETURN(const Left left, ReadNote(NameAt(source)));
    begun = begun || left.begun;
  }
  return begun ? CheckIds() : absl::OkStatus();
}

absl::Status Backfill::ReadPlace() {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection_->Query("SELECT p.snapshot, p.backfill ->> 'gap', c.system_identifier "
                         "FROM walpost.pipeline p CROSS JOIN pg_control_system() c "
                         "WHERE p.name = $1",
                         {options_.pipeline.name}));
  if (rows.empty() || !rows[0].at(0)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "walpost.pipeline has no snapshot for pipeline '%s': the slot was made anew, and that was "
        "interrupted before its snapshot was recorded. Run `walpost slot recreate --yes` again",
        options_.pipeline.name));
  }
  snapshot_ = *rows[0][0];
  if (rows[0].at(1)) {
    ASSIGN_OR_RETURN(gap_, Gap::FromJson(*rows[0][1], rows[0].at(2).value_or("")));
  }
  return absl::OkStatus();
}

absl::Status Backfill::Look(std::uint32_t source) {
  const std::string name = NameAt(source);
  Table& table = tables_[source];
  ASSIGN_OR_RETURN(table.left, ReadNote(name));
  if (table.left.done) {
    return absl::OkStatus();
  }
  if (!readers_.contains(source)) {
    RETURN_IF_ERROR(base::Annotate(OpenLater(source, table.left.seq), name));
  }
  table.settled_rows.settled.assign(readers_.at(source).count(), false);
  if (!gap_ && !table.left.begun) {
    return absl::OkStatus();  // compared with nothing
  }
  RETURN_IF_ERROR(base::Annotate(FindSettled(source), name));
  return base::Annotate(Judge(table.settled_rows.doubt), name);
}

absl::StatusOr<std::string> Backfill::Send(std::uint32_t source) {
  const std::string name = NameAt(source);
  const char* const label = gap_ ? "gap          " : "backfill     ";
  Table& table = tables_.at(source);
  if (table.left.done) {
    curable_out_ += table.left.curable_out;
    const std::string left_out = table.left.curable_out > 0
                                     ? absl::StrFormat(", %d left out then", table.left.curable_out)
                                     : "";
    return absl::StrFormat("%s%s was sent before%s\n", label, name, left_out);
  }
  others_left_out_ = sender_ ? sender_->left_out() : 0;
  left_out_noted_ = false;
  if (!table.left.begun) {
    table.left.begun = true;
    RETURN_IF_ERROR(Note(name, table.left));
  }
  const std::uint64_t left_out_before = table.left.curable_out;
  RETURN_IF_ERROR(base::Annotate(SendAll(source, &table), name));
  table.left.done = true;
  RETURN_IF_ERROR(Note(name, table.left));
  const SettledRows& settled_rows = table.settled_rows;
  std::string line = absl::StrFormat("%s%s: %s", label, name, sender_->TakeAccount());
  curable_out_ += table.left.curable_out;
  if (left_out_before > 0) {
    line += absl::StrFormat(", %d had been left out before", left_out_before);
  }
  if (settled_rows.in_topic > 0) {
    line += absl::StrFormat(", %d %s", settled_rows.in_topic,
                            gap_ ? "are in Kafka already" : "had been sent before");
  }
  if (settled_rows.dead_letters > 0) {
    line += absl::StrFormat(", %d are dead letters", settled_rows.dead_letters);
  }
  line += settled_rows.SupersededText() + settled_rows.UnprovenText();
  if (!settled_rows.warning.empty()) {
    line += "\nwarning      " + settled_rows.warning;
  }
  if (!note_warnings_[source].empty()) {
    line += "\nwarning      " + note_warnings_[source];
  }
  return line + "\n";
}

// Rows with the id of their transaction: any time after the slot was made.
absl::Status Backfill::OpenLater(std::uint32_t source, const std::string& after) {
  ASSIGN_OR_RETURN(RowReader reader, NewReader(source));
  bool known = reader.HasTransactionIds();
  if (known) {
    ASSIGN_OR_RETURN(known, reader.TransactionsAreOurs());
  }
  if (!known) {
    return absl::FailedPreconditionError(
        "it was interrupted, and walpost cannot distinguish its rows from later ones without a "
        "column tx of type xid8 that this cluster has filled in every row: `walpost slot recreate "
        "--yes` begins anew, and sends what Kafka does not hold");
  }
  std::string where = absl::StrFormat("pg_visible_in_snapshot(t.tx, %s)", QuoteLiteral(snapshot_));
  if (gap_) {
    ASSIGN_OR_RETURN(const std::string bound, Bound(source, reader, reader.connection()));
    where += " AND " + bound;
  }
  if (!after.empty()) {
    // Others may have the same, and those without any come last: what was sent of both is there.
    const std::string order = reader.OrderColumn();
    where += absl::StrFormat(" AND (%s >= %s OR %s IS NULL)", order, QuoteLiteral(after), order);
  }
  RETURN_IF_ERROR(reader.Open(where, Reading::kTwice));
  readers_.emplace(source, std::move(reader));
  return absl::OkStatus();
}

// Settled rows are not sent.
absl::Status Backfill::FindSettled(std::uint32_t source) {
  SettledRowsOptions options;
  options.temp_folder = options_.temp_folder;
  options.on_progress = options_.on_progress;
  options.dead_letters = gap_.has_value();
  options.from_oldest_row = gap_ && gap_->since_ms;
  options.shared_ids = shared_ids_;
  ASSIGN_OR_RETURN(
      tables_[source].settled_rows,
      FindSettledRows(options_.pipeline, options, NameAt(source), &readers_.at(source)));
  return absl::OkStatus();
}

absl::Status Backfill::SendAll(std::uint32_t source, Table* table) {
  const SettledRows& settled_rows = table->settled_rows;
  if (!sender_) {  // one for all tables, so that no wait comes again for each
    sender_.emplace(options_.pipeline.kafka, options_.pipeline.registry, options_.pipeline.outboxes,
                    gap_ ? "gap" : "backfill", options_.patience, options_.on_warning);
  }
  curable_before_ = sender_->curable_out();
  sender_->KnowUnseen(settled_rows.unseen_topics);
  const std::string name = NameAt(source);
  RETURN_IF_ERROR(sender_->FollowParkedKeys(options_.pipeline, name));
  const auto on_row = [&](const ReadRow& row) {
    if (row.number > 0 && row.number % options_.note_every == 0) {
      // Before it is sent: who goes on begins with this row, and counts it then.
      RETURN_IF_ERROR(NoteAt(source, row, &table->left));
    }
    ReportProgress(name, row.number + 1, settled_rows.settled.size());
    return settled_rows.settled[row.number]
               ? absl::OkStatus()
               : sender_->SendRow(row, schemas_, options_.skip_undeliverable);
  };
  RETURN_IF_ERROR(readers_.at(source).ForEach(on_row));
  RETURN_IF_ERROR(sender_->Flush());
  CountLeftOut(&table->left);
  readers_.erase(source);
  return absl::OkStatus();
}

void Backfill::CountLeftOut(Left* left) {
  left->curable_out += sender_->curable_out() - curable_before_;
  curable_before_ = sender_->curable_out();
}

absl::Status Backfill::NoteAt(std::uint32_t source, const ReadRow& row, Left* left) {
  RETURN_IF_ERROR(sender_->Flush());
  if (!row.seq || !readers_.at(source).HasTransactionIds()) {
    return absl::OkStatus();
  }
  left->seq = *row.seq;
  CountLeftOut(left);
  return Note(NameAt(source), *left);
}

absl::StatusOr<Backfill::Left> Backfill::ReadNote(const std::string& table) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection_->Query("SELECT backfill #>> ARRAY[$2, 'state'], backfill #>> ARRAY[$2, 'seq'], "
                         "coalesce(backfill #>> ARRAY[$2, 'left_out'], '0') FROM walpost.pipeline "
                         "WHERE name = $1",
                         {options_.pipeline.name, table}));
  Left left;
  if (!rows.empty() && rows[0].at(0)) {
    left.begun = true;
    left.done = rows[0][0] == "done";
    left.seq = rows[0].at(1).value_or("");
    if (!absl::SimpleAtoi(*rows[0].at(2), &left.curable_out)) {
      return absl::DataLossError("walpost.pipeline, backfill: left_out is no number");
    }
  }
  return left;
}

absl::Status Backfill::Note(const std::string& table, const Left& left) {
  RETURN_IF_ERROR(lock_->Check());
  if (sender_ && sender_->left_out() > others_left_out_ && !left_out_noted_) {
    // Now, since whoever goes on after an interruption passes these rows by.
    ASSIGN_OR_RETURN(
        left_out_noted_,
        NoteSkipped(options_.pipeline, "",
                    absl::StrFormat("rows of %s were left out: they can be no records, there is no "
                                    "schema for them, or their topics take nothing",
                                    table)));
  }
  nlohmann::json note{{"state", left.done ? "done" : "sending"}};
  if (!left.seq.empty()) {
    note["seq"] = left.seq;
  }
  if (left.curable_out > 0) {
    note["left_out"] = left.curable_out;
  }
  return connection_
      ->Query(
          "UPDATE walpost.pipeline SET backfill = coalesce(backfill, '{}') || "
          "jsonb_build_object($2::text, "
          "$3::jsonb) WHERE name = $1",
          {options_.pipeline.name, table, base::JsonText(note)})
      .status();
}

}  // namespace walpost::operations
