#include "operations/setup/slot_move.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/source_facts.h"
#include "base/status.h"
#include "envelope/control_records.h"
#include "kafka/progress.h"
#include "kafka/topics.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/outcome.h"
#include "operations/setup/init_sql.h"
#include "operations/setup/pipeline_record.h"
#include "postgres/failure.h"
#include "postgres/preflight.h"
#include "postgres/server_watch.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using base::FindOther;
using base::HaltReason;
using base::Lsn;
using base::Progress;
using postgres::PreflightStep;
using postgres::Row;
using postgres::SqlConnection;

PipelineSettings PipelineOf(const InitOptions& options) {
  PipelineSettings pipeline;
  pipeline.name = options.name;
  pipeline.source = options.source;
  pipeline.dead_letter_conninfo = options.dead_letter_conninfo;
  return pipeline;
}

bool HasTablesOf(const base::Fingerprint& one, const base::Fingerprint& other) {
  return std::all_of(other.tables.begin(), other.tables.end(),
                     [&](const base::PublishedTable& table) { return one.Find(table) != nullptr; });
}

// What both verbs look at before they change anything.
class Mover {
 public:
  explicit Mover(const InitOptions& options) : options_(options) {}

  // `slot_may_be_lost`: the slot need not be there, or readable.
  absl::Status Look(bool slot_may_be_lost) {
    auto seen = postgres::CheckSource(options_.source);
    if (const auto* end = std::get_if<postgres::StreamEnd>(&seen)) {
      return end->status;
    }
    const auto& report = std::get<postgres::PreflightReport>(seen);
    facts_ = report.facts;
    for (const PreflightStep& step : report.steps) {
      if (step.problem && !Repairable(step, slot_may_be_lost)) {
        return absl::FailedPreconditionError(std::string(step.problem->status.message()));
      }
    }
    return ReadProgress();
  }

  absl::Status ReadProgress() {
    if (options_.progress_topic.empty()) {
      return absl::OkStatus();
    }
    const auto records =
        kafka::ReadProgress(options_.kafka, {options_.progress_topic, options_.name},
                            {options_.kafka_timeout, &unread_, /*so_far=*/nullptr});
    if (absl::IsNotFound(records.status())) {
      return absl::OkStatus();  // it is made before it is written to
    }
    RETURN_IF_ERROR(records.status());
    for (const Progress& progress : *records) {
      const auto rank = [](const Progress& p) {
        return std::tuple(p.epoch, p.timeline, p.end_lsn, p.recorded_at);
      };
      if (!newest_ || rank(progress) > rank(*newest_)) {
        newest_ = progress;
      }
    }
    return absl::OkStatus();
  }

  // The slot as it is, and what is remembered.
  std::string Describe() const {
    std::string text =
        facts_.confirmed_flush_lsn.valid()
            ? absl::StrFormat("slot %s on cluster %u, timeline %u, is confirmed up to %s\n",
                              options_.source.slot, facts_.system_identifier, facts_.timeline,
                              facts_.confirmed_flush_lsn.ToString())
            : absl::StrFormat("slot %s on cluster %u, timeline %u, has nothing to read\n",
                              options_.source.slot, facts_.system_identifier, facts_.timeline);
    if (options_.progress_topic.empty()) {
      return text + "progress is not remembered (delivery.progress_topic is empty)\n";
    }
    if (unread_.count > 0) {
      text += absl::StrFormat(
          "%u record(s) in the progress topic cannot be read and do not count: %s\n", unread_.count,
          unread_.detail);
    }
    if (!newest_) {
      return text + "no progress is remembered: walpost cannot know what is in Kafka\n";
    }
    text +=
        absl::StrFormat("progress is remembered on cluster %u, timeline %u, up to %s\n",
                        newest_->system_identifier, newest_->timeline, newest_->end_lsn.ToString());
    if (remembered() && !RememberedIsOfThisHistory()) {
      text +=
          "this server's history does not have that position (it was set back, or a failover lost "
          "what came before it), so it does not show which rows are in Kafka\n";
    }
    return text;
  }

  // Where what is remembered ends, when it is of this cluster.
  std::optional<Lsn> remembered() const {
    return newest_ && newest_->system_identifier == facts_.system_identifier
               ? std::optional(newest_->end_lsn)
               : std::nullopt;
  }

  // Whether what lies before it here is what was delivered then.
  bool RememberedIsOfThisHistory() const {
    return remembered() && facts_.MayHave(newest_->timeline, newest_->end_lsn);
  }

  // Whether what streamed up to there took the same tables and prefixes for events.
  bool HasSameEvents() const {
    return !newest_ || (FindOther(newest_->message_prefixes, facts_.message_prefixes) == nullptr &&
                        FindOther(facts_.message_prefixes, newest_->message_prefixes) == nullptr &&
                        HasTablesOf(*newest_, facts_) && HasTablesOf(facts_, *newest_));
  }

  bool remembers_nothing() const { return !newest_ && unread_.count == 0; }

  // For a decision: so that nothing is changed before it.
  absl::Status CheckRoom() const {
    const std::uint64_t newest = newest_ ? newest_->epoch : 0;
    return std::max(newest, unread_.newer_epoch.value_or(0)) < Progress::kEpochMax
               ? absl::OkStatus()
               : absl::FailedPreconditionError(
                     "the newest record of the progress topic leaves no room for a decision after "
                     "it: walpost did not write it; take another delivery.progress_topic, and see "
                     "to it that nobody else may write there (docs/security.md)");
  }

  // From here on streaming begins at `position` and at nothing else.
  absl::Status Decide(Lsn position) { return Remember(position, /*decided=*/true); }

  absl::Status Remember(Lsn position, bool decided) {
    if (options_.progress_topic.empty()) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(kafka::EnsureTopic(options_.kafka,
                                       kafka::ProgressTopic(options_.progress_topic),
                                       options_.kafka_timeout)
                        .status());
    ASSIGN_OR_RETURN(
        SqlConnection connection,
        SqlConnection::Connect(options_.source.conninfo, options_.source.application_name));
    ASSIGN_OR_RETURN(const base::WallTime now, postgres::ReadServerClock(&connection));
    Progress progress = facts_.DecisionAt(position, now, newest_);
    ASSIGN_OR_RETURN(std::optional<postgres::DeadLetterTable> dead_letters,
                     FindDeadLetters(PipelineOf(options_)));
    if (dead_letters) {  // who decides takes the table as it is
      ASSIGN_OR_RETURN(const postgres::DeadLetterTable::Written written,
                       dead_letters->CountWritten());
      progress.dead_letters = written.rows;
    }
    const std::uint64_t after_newer = base::NextEpoch(unread_.newer_epoch.value_or(0), now);
    progress.epoch = decided ? std::max(progress.epoch, after_newer) : 0;
    progress.recorded_at =
        std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    RETURN_IF_ERROR(CheckRoom());
    return kafka::WriteProgress(options_.kafka, {options_.progress_topic, options_.name}, progress,
                                options_.kafka_timeout);
  }

  const base::SourceFacts& facts() const { return facts_; }

 private:
  bool Repairable(const PreflightStep& step, bool slot_may_be_lost) const {
    const HaltReason reason = step.problem->reason;
    if (step.name == "slot") {
      return slot_may_be_lost &&
             (reason == HaltReason::kSlotMissing || reason == HaltReason::kSlotInvalidated ||
              reason == HaltReason::kInitIncomplete);
    }
    if (step.name == "publication") {
      return slot_may_be_lost && facts_.publication_oid == 0;  // it is made with the slot
    }
    if (step.name == "dead_letters") {
      return true;  // neither verb needs them
    }
    return step.name == "record" && (reason == HaltReason::kClusterChanged ||
                                     (slot_may_be_lost && reason == HaltReason::kInitIncomplete));
  }

  const InitOptions& options_;
  base::SourceFacts facts_;
  std::optional<Progress> newest_;
  kafka::UnreadProgress unread_;
};

// A cluster that is adopted is the recorded one from here on, and what lies before `position` is
// dealt with in it.
absl::StatusOr<std::string> RecordDecision(const InitOptions& options,
                                           const base::SourceFacts& facts, Lsn position,
                                           SqlConnection* connection) {
  ASSIGN_OR_RETURN(const auto record, FindRecord(connection, options.name, options.source.slot));
  if (!record) {
    return "";
  }
  const std::string here = std::to_string(facts.system_identifier);
  if (record->system_identifier == here) {
    RETURN_IF_ERROR(RecordDelivered(connection, record->name, position));
    return "";
  }
  ASSIGN_OR_RETURN(const std::uint64_t taken, RecordCluster(connection, *record, here, position));
  return TakenOver(*record, taken);
}

std::string WhatAdoptingMeans(const Mover& mover) {
  const Lsn slot = mover.facts().confirmed_flush_lsn;
  const std::optional<Lsn> remembered = mover.remembered();
  if (remembered && *remembered > slot) {
    return absl::StrFormat(
        "streaming goes on at %s: events up to %s that are in Kafka already are sent again\n",
        slot.ToString(), remembered->ToString());
  }
  if (remembered) {
    return absl::StrFormat(
        "streaming goes on at %s: events committed after %s and before that are not sent\n",
        slot.ToString(), remembered->ToString());
  }
  return absl::StrFormat(
      "streaming goes on at %s: events committed before that and not in Kafka are not sent\n",
      slot.ToString());
}

constexpr char kKeptUntilDiscarded[] =
    "outbox.maintain keeps every row until you say that nothing is missing: `walpost replay "
    "--missing "
    "--in-place`, then `walpost dlq discard --reason transactions_skipped --yes`\n";

// The position after which the slot stands.
absl::StatusOr<Lsn> Advance(const InitOptions& options, Lsn to, SqlConnection* connection) {
  const auto rows =
      connection->Query("SELECT end_lsn::text FROM pg_replication_slot_advance($1, $2::pg_lsn)",
                        {options.source.slot, Lsn(to.value() + 1).ToString()});
  if (!rows.ok()) {
    const std::string& sqlstate = connection->last_sqlstate();
    // A slot is advanced by reading what lies between.
    const bool unreadable = sqlstate == postgres::sqlstate::kInternalError ||
                            sqlstate == postgres::sqlstate::kProgramLimitExceeded;
    return base::Annotate(
        rows.status(),
        absl::StrFormat("advancing slot \"%s\"%s", options.source.slot,
                        unreadable ? " (the server cannot read the change itself: `walpost slot "
                                     "recreate --yes` goes on behind it and sends what the tables "
                                     "have; see docs/runbook.md, poison_wal)"
                                   : ""));
  }
  ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(connection, options.source.slot));
  if (!slot || slot->confirmed_flush_lsn <= to) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "slot \"%s\" could not be advanced past %s: is that beyond the end of the log?",
        options.source.slot, to.ToString()));
  }
  return slot->confirmed_flush_lsn;
}

absl::StatusOr<Outcome> TryAdvance(const InitOptions& options, const std::string& to,
                                   bool confirmed) {
  Mover mover(options);
  RETURN_IF_ERROR(mover.Look(/*slot_may_be_lost=*/false));
  Lsn position = mover.facts().confirmed_flush_lsn;
  const Lsn before = position;
  RETURN_IF_ERROR(mover.CheckRoom());
  std::string text = mover.Describe();
  std::string skipped;
  Lsn target;
  if (to.empty()) {
    text += WhatAdoptingMeans(mover);
  } else {
    ASSIGN_OR_RETURN(target, Lsn::Parse(to));
    if (target < position) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the slot is confirmed up to %s already and cannot go back to %s",
                          position.ToString(), to));
    }
    skipped = absl::StrFormat(
        "every transaction that committed at %s or later, up to and with the one that committed at "
        "%s, is skipped: its events are not sent",
        std::max(position, mover.remembered().value_or(position)).ToString(), target.ToString());
    text += skipped + "\n";
  }
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(options.source.conninfo, options.source.application_name));
  if (!mover.HasSameEvents()) {
    const Lsn from = to.empty() ? position : Lsn(target.value() + 1);
    RETURN_IF_ERROR(CheckDeadLettersFrom(&connection, options.name, from));
  }
  if (!confirmed) {
    return Outcome{kExitUsage, text, "nothing was changed; add --yes to do it"};
  }
  bool noted = false;
  if (to.empty()) {
    // An edit of the publication leaves out rows at any position, so no position is noted.
    ASSIGN_OR_RETURN(noted, NoteSkipped(PipelineOf(options), "", WhatAdoptingMeans(mover)));
  } else {
    const std::string noted_at = envelope::Position{mover.facts().system_identifier,
                                                    mover.facts().TimelineOf(target), target, 0}
                                     .ToString();
    ASSIGN_OR_RETURN(noted, NoteSkipped(PipelineOf(options), noted_at,
                                        absl::StrFormat("slot %s was advanced from %s past %s: %s",
                                                        options.source.slot, before.ToString(),
                                                        target.ToString(), skipped)));
    ASSIGN_OR_RETURN(position, Advance(options, target, &connection));
    text += absl::StrFormat("slot %s advanced to %s\n", options.source.slot, position.ToString());
  }
  // A walpost that begins to stream now would not know of the decision.
  ASSIGN_OR_RETURN(const auto held, postgres::SlotHold::Take(options.source));
  ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(&connection, options.source.slot));
  if (!slot || slot->confirmed_flush_lsn != position) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "somebody else moved slot \"%s\" meanwhile: stop the walpost that uses it, then try again",
        options.source.slot));
  }
  RETURN_IF_ERROR(mover.ReadProgress());  // once more: nobody writes it from here on
  RETURN_IF_ERROR(mover.Decide(position));
  RETURN_IF_ERROR(held.Check(&connection));
  ASSIGN_OR_RETURN(const std::string taken,
                   RecordDecision(options, mover.facts(), position, &connection));
  text += taken;
  text += noted ? kKeptUntilDiscarded : "";
  return Outcome{0, text + "done; a walpost that is halted resumes on SIGHUP\n", ""};
}

// Where the gap begins: what an interrupted attempt found, for by now another slot may be there.
absl::StatusOr<Gap> FindGap(const RecreateOptions& options, const Mover& mover,
                            const std::optional<PipelineRecord>& record) {
  const std::string here = std::to_string(mover.facts().system_identifier);
  const bool recorded_here = record && record->system_identifier == here;
  Gap gap;
  gap.cluster = here;
  if (record && record->gap) {
    ASSIGN_OR_RETURN(gap, Gap::FromJson(*record->gap, here));
  } else if (record && !record->backfilled) {
    // Not even what was there before the first slot is all sent.
  } else if (mover.remembered()) {
    gap.from = mover.RememberedIsOfThisHistory() ? *mover.remembered() : Lsn();
  } else if (options.init.progress_topic.empty() && recorded_here) {
    gap.from = mover.facts().confirmed_flush_lsn;
  }
  if (record && !record->gap && recorded_here && gap.from.valid()) {
    gap.notes = std::min(gap.from, record->delivered);
  }
  gap.since_ms = options.since_ms;  // of this attempt, not of one that was interrupted
  return gap;
}

// Before anything is changed.
absl::Status CheckGap(const RecreateOptions& options, const Gap& gap) {
  if (options.leave_gap) {
    return absl::OkStatus();
  }
  BackfillOptions backfill = options.backfill;
  backfill.gap = gap;
  Backfill found(backfill);
  RETURN_IF_ERROR(found.CheckGap());
  return found.CheckRows();
}

// False = there was none.
absl::StatusOr<bool> DropSlotIfThere(const std::string& name, SqlConnection* connection) {
  ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(connection, name));
  if (slot) {
    RETURN_IF_ERROR(postgres::DropSlot(connection, name));
  }
  return slot.has_value();
}

// Both or neither: a slot that somebody streams from by now stays, and its pipeline with it. An
// attempt that is interrupted after this does not lose where the gap begins.
absl::StatusOr<bool> RecordGapAndDropSlot(const PipelineRecord& record, const Gap& gap,
                                          const std::string& slot, SqlConnection* connection) {
  RETURN_IF_ERROR(connection->Execute("BEGIN"));
  const absl::Status recorded = RecordGap(connection, record.name, gap.ToJson());
  absl::StatusOr<bool> dropped = recorded.ok() ? DropSlotIfThere(slot, connection) : recorded;
  RETURN_IF_ERROR(connection->EndTransaction(dropped.status()));
  return dropped;
}

absl::StatusOr<Outcome> TryRecreate(const RecreateOptions& options, bool confirmed) {
  Mover mover(options.init);
  RETURN_IF_ERROR(mover.Look(/*slot_may_be_lost=*/true));
  RETURN_IF_ERROR(mover.CheckRoom());
  const postgres::ConnectOptions& source = options.init.source;
  ASSIGN_OR_RETURN(SqlConnection connection,
                   SqlConnection::Connect(source.conninfo, source.application_name));
  ASSIGN_OR_RETURN(const auto record, FindRecord(&connection, options.init.name, source.slot));
  ASSIGN_OR_RETURN(const Gap gap, FindGap(options, mover, record));
  std::string text = mover.Describe() + WhatIsSent(options, gap);
  ASSIGN_OR_RETURN(const std::string cannot, WhatCannotBeSent(options.init, &connection));
  text += cannot;
  ASSIGN_OR_RETURN(const auto prefixes, ReadPrefixes(&connection, options.init.name));
  InitOptions init = options.init;
  init.with_messages = !prefixes.empty();  // or emit_message would reject them from here on
  bool noted = false;
  const auto note_skipped = [&]() -> absl::Status {
    const bool leaves_rows_out = options.leave_gap || options.since_ms;
    if (leaves_rows_out && !noted) {
      ASSIGN_OR_RETURN(noted, NoteSkipped(PipelineOf(options.init), "", WhatIsSent(options, gap)));
    }
    return absl::OkStatus();
  };
  init.drop_slot = [&]() -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(note_skipped());
    return record && !options.leave_gap
               ? RecordGapAndDropSlot(*record, gap, source.slot, &connection)
               : DropSlotIfThere(source.slot, &connection);
  };
  init.replaced = [&]() -> absl::Status {
    RETURN_IF_ERROR(note_skipped());  // there may have been no table before
    Mover anew(options.init);
    RETURN_IF_ERROR(anew.Look(/*slot_may_be_lost=*/true));
    return anew.Decide(anew.facts().confirmed_flush_lsn);
  };
  absl::Status judged = CheckInit(init);
  judged = judged.ok() ? CheckGap(options, gap) : judged;
  if (!judged.ok()) {
    Outcome rejected = Failed(judged);
    rejected.output = text;
    return rejected;
  }
  if (!confirmed) {
    return Outcome{kExitUsage, text, "nothing was changed; add --yes to do it"};
  }
  if (!options.leave_gap) {
    init.backfill = options.backfill;
    init.backfill->gap = gap;
  }
  Outcome made = Init(init);
  made.output = text + made.output;
  made.output += noted ? kKeptUntilDiscarded : "";
  if (made.exit_code == 0 || made.exit_code == kExitData) {
    made.output += "done; a walpost that is halted resumes on SIGHUP\n";
  }
  return made;
}

}  // namespace

absl::Status RememberBeginning(const InitOptions& options) {
  if (options.progress_topic.empty()) {
    return absl::OkStatus();
  }
  Mover begun(options);
  RETURN_IF_ERROR(begun.Look(/*slot_may_be_lost=*/true));
  return begun.remembers_nothing()
             ? begun.Remember(begun.facts().confirmed_flush_lsn, /*decided=*/false)
             : absl::OkStatus();
}

Outcome SlotAdvance(const InitOptions& options, const std::string& to, bool confirmed) {
  absl::StatusOr<Outcome> outcome = TryAdvance(options, to, confirmed);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

Outcome SlotRecreate(const RecreateOptions& options, bool confirmed) {
  absl::StatusOr<Outcome> outcome = TryRecreate(options, confirmed);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

}  // namespace walpost::operations
