#include "operations/reconcile/settled_rows.h"

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/status.h"
#include "operations/reconcile/reconciliation.h"

namespace walpost::operations {

using kafka::Compaction;

std::string SettledRows::SupersededText() const {
  return superseded > 0 ? absl::StrFormat(", %d superseded by newer ones, compacted", superseded)
                        : "";
}

std::string CompactionDoubt(const std::string& unknown) {
  return unknown +
         "; --send-unproven sends what is not there, behind newer events of its keys where the "
         "topic is compacted";
}

std::string SettledRows::UnprovenText() const {
  return unproven > 0 ? absl::StrFormat(", of %d it is not known whether Kafka has them", unproven)
                      : "";
}

namespace {

std::string Doubt(const Reconciled& reconciled, const std::string& topic) {
  const std::string id = base::Printable(reconciled.row.id);
  if (reconciled.id_unproven) {
    return absl::StrFormat(
        "it is not known of row %s whether topic '%s' has it: a record or dead letter with its id "
        "may be about another row, of this table, another one or another pipeline, or too many "
        "rows have its id; --send-unproven sends such rows",
        id, topic);
  }
  if (reconciled.order_unproven) {
    return absl::StrFormat(
        "topic '%s' is compacted and has a record with the key of row %s that is about no row of "
        "this table, or about one that no columns.seq puts before or behind it, so it is not known "
        "which is newer; --send-unproven sends such rows, perhaps behind newer events of their "
        "keys",
        topic, id);
  }
  return absl::StrFormat(
      "topic '%s' is compacted and has nothing of the key of row %s. The row is older than what "
      "delete.retention.ms keeps, so it is not known whether the key was deleted behind it; "
      "--send-unproven sends such rows, and a key that was deleted is back unless its deletion is "
      "one of them",
      topic, id);
}

}  // namespace

absl::StatusOr<SettledRows> FindSettledRows(const PipelineSettings& pipeline,
                                            const SettledRowsOptions& options,
                                            std::string_view source, RowReader* reader) {
  ASSIGN_OR_RETURN(Reconciliation reconciliation,
                   Reconciliation::Create(options.temp_folder, options.shared_ids));
  RETURN_IF_ERROR(reader->ForEach([&](const ReadRow& row) {
    if (options.on_progress) {
      options.on_progress("reconciled", row.number + 1, reader->count());
    }
    return reconciliation.Add(row, row.number, source);
  }));
  RETURN_IF_ERROR(reconciliation.Look(pipeline, {options.from_oldest_row, options.dead_letters}));
  SettledRows settled_rows;
  settled_rows.settled.assign(reader->count(), false);
  const auto on_row = [&](const Reconciled& reconciled) {
    const bool dead_letter = !reconciled.in_topic && reconciled.fate != DeadLetterFate::kNone;
    const bool superseded = reconciled.superseded && !dead_letter;
    const bool settled = reconciled.in_topic || dead_letter || superseded;
    settled_rows.settled[reconciled.row.number] = settled;
    settled_rows.in_topic += reconciled.in_topic ? 1 : 0;
    settled_rows.dead_letters += dead_letter ? 1 : 0;
    settled_rows.superseded += superseded ? 1 : 0;
    const ReconciledTopic& topic = reconciliation.topics()[reconciled.row.topic];
    if (!settled &&
        (reconciled.id_unproven || reconciled.order_unproven || reconciled.deletion_unproven)) {
      ++settled_rows.unproven;
      settled_rows.doubt = Doubt(reconciled, topic.name);
    }
    const kafka::TopicGaps& gaps = topic.gaps;
    settled_rows.missing_of_compacted += gaps.compaction == Compaction::kYes && !settled ? 1 : 0;
    if (gaps.compaction == Compaction::kUnknown && !settled) {
      settled_rows.doubt =
          CompactionDoubt(kafka::UnknownCompactionText(topic.name, gaps.compaction_unknown));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(reconciliation.Judge(on_row, /*in_order=*/true));
  for (const ReconciledTopic& topic : reconciliation.topics()) {
    if (topic.unseen) {
      settled_rows.unseen_topics.emplace(topic.name, *topic.unseen);
    }
  }
  if (reader->IdsMayRepeat()) {
    settled_rows.warning = reconciliation.RepeatedIdsText(source);
  }
  return settled_rows;
}

}  // namespace walpost::operations
