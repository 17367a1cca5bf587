#include "operations/presence.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/comparison.h"

namespace walpost::operations {

std::string Presence::SupersededText() const {
  return superseded > 0 ? absl::StrFormat(", %d superseded by newer ones, compacted", superseded)
                        : "";
}

absl::StatusOr<Presence> FindPresence(const DlqOptions& pipeline, const PresenceOptions& options,
                                      std::string_view source, RowReader* reader) {
  ASSIGN_OR_RETURN(Comparison comparison, Comparison::Create(options.spill_folder));
  RETURN_IF_ERROR(reader->ForEach([&](const ReadRow& row) {
    if (options.on_progress) {
      options.on_progress("compared", row.number + 1, reader->count());
    }
    return comparison.Add(row, row.number, source);
  }));
  RETURN_IF_ERROR(comparison.Look(pipeline, {options.from_oldest_row, options.dead_letters}));
  Presence presence;
  presence.there.assign(reader->count(), false);
  const auto on_row = [&](const Compared& compared) {
    const bool dead_letter = !compared.in_topic && compared.fate != DeadLetterFate::kNone;
    const bool superseded = compared.superseded && !dead_letter;
    const bool there = compared.in_topic || dead_letter || superseded;
    presence.there[compared.row.number] = there;
    presence.in_topic += compared.in_topic ? 1 : 0;
    presence.dead_letters += dead_letter ? 1 : 0;
    presence.superseded += superseded ? 1 : 0;
    const bool compacted = comparison.topics()[compared.row.topic].gaps.compacted;
    presence.missing_of_compacted += compacted && !there ? 1 : 0;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(comparison.Judge(on_row, /*in_order=*/true));
  return presence;
}

}  // namespace walpost::operations
