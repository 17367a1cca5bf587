#include "operations/deadletters/skipped_note.h"

#include <optional>

#include "base/dead_letter.h"
#include "base/status.h"
#include "operations/deadletters/dlq.h"
#include "postgres/dead_letters.h"

namespace walpost::operations {

absl::StatusOr<bool> NoteSkipped(const PipelineSettings& options, const std::string& position,
                                 const std::string& detail) {
  ASSIGN_OR_RETURN(std::optional<postgres::DeadLetterTable> table, FindDeadLetters(options));
  if (!table) {
    return false;
  }
  if (position.empty()) {
    ASSIGN_OR_RETURN(const postgres::DeadLetterTable::Written written, table->CountWritten());
    if (written.in_recovery) {
      return false;
    }
  }
  base::DeadLetter row;
  row.reason = kTransactionsSkipped;
  row.detail = detail;
  row.position = position;
  row.truncated_bytes = 0;
  ASSIGN_OR_RETURN(const postgres::DeadLetterTable::Inserted inserted, table->Insert({row}));
  if (inserted.states.at(0) != base::DeadLetterState::kOpen) {
    // That of an attempt that failed, which somebody has discarded since: this one needs its own.
    row.position.clear();
    RETURN_IF_ERROR(table->Insert({row}).status());
  }
  return true;
}

}  // namespace walpost::operations
