#include "operations/presence.h"

#include "base/status.h"
#include "operations/comparison.h"

namespace walpost::operations {

absl::StatusOr<Presence> FindPresence(const DlqOptions& pipeline, const PresenceOptions& options,
                                      RowReader* reader) {
  ASSIGN_OR_RETURN(Comparison comparison, Comparison::Create(options.spill_folder));
  RETURN_IF_ERROR(reader->ForEach([&](const ReadRow& row) {
    if (options.on_progress) {
      options.on_progress("compared", row.number + 1, reader->count());
    }
    return comparison.Add(row, row.number);
  }));
  RETURN_IF_ERROR(comparison.Scan(pipeline.kafka, pipeline.kafka_timeout, options.since_ms));
  if (options.dead_letters) {
    RETURN_IF_ERROR(comparison.DeadLetters(pipeline));
  }
  Presence presence;
  presence.there.assign(reader->count(), false);
  RETURN_IF_ERROR(comparison.Judge([&](const Compared& compared) {
    const bool dead_letter = !compared.in_topic && compared.fate != DeadLetterFate::kNone;
    presence.there[compared.row.number] = compared.in_topic || dead_letter;
    presence.in_topic += compared.in_topic ? 1 : 0;
    presence.dead_letters += dead_letter ? 1 : 0;
    return absl::OkStatus();
  }));
  return presence;
}

}  // namespace walpost::operations
