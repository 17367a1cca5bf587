#include "operations/presence.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/reconciliation.h"

namespace walpost::operations {

std::string Presence::SupersededText() const {
  return superseded > 0 ? absl::StrFormat(", %d superseded by newer ones, compacted", superseded)
                        : "";
}

absl::StatusOr<Presence> FindPresence(const DlqOptions& pipeline, const PresenceOptions& options,
                                      std::string_view source, RowReader* reader) {
  ASSIGN_OR_RETURN(Reconciliation reconciliation, Reconciliation::Create(options.temp_folder));
  RETURN_IF_ERROR(reader->ForEach([&](const ReadRow& row) {
    if (options.on_progress) {
      options.on_progress("reconciled", row.number + 1, reader->count());
    }
    return reconciliation.Add(row, row.number, source);
  }));
  RETURN_IF_ERROR(reconciliation.Look(pipeline, {options.from_oldest_row, options.dead_letters}));
  Presence presence;
  presence.there.assign(reader->count(), false);
  const auto on_row = [&](const Reconciled& reconciled) {
    const bool dead_letter = !reconciled.in_topic && reconciled.fate != DeadLetterFate::kNone;
    const bool superseded = reconciled.superseded && !dead_letter;
    const bool there = reconciled.in_topic || dead_letter || superseded;
    presence.there[reconciled.row.number] = there;
    presence.in_topic += reconciled.in_topic ? 1 : 0;
    presence.dead_letters += dead_letter ? 1 : 0;
    presence.superseded += superseded ? 1 : 0;
    const bool compacted = reconciliation.topics()[reconciled.row.topic].gaps.compacted;
    presence.missing_of_compacted += compacted && !there ? 1 : 0;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(reconciliation.Judge(on_row, /*in_order=*/true));
  for (const ReconciledTopic& topic : reconciliation.topics()) {
    if (!topic.exists) {
      presence.unknown_topics.insert(topic.name);
    }
  }
  if (reader->IdsMayRepeat()) {
    presence.warning = reconciliation.RepeatedIdsText(source);
  }
  return presence;
}

}  // namespace walpost::operations
