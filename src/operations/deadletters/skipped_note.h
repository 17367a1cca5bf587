// NoteSkipped - a dead letter that stands for rows which an operator had left out.
// Why: they can be found where undeliverable events are looked for, and outbox.maintain keeps all rows until
//   somebody discards it: these may be nowhere else.
// Thread: blocking.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "operations/pipeline_settings.h"

namespace walpost::operations {

// Its reason.
inline constexpr char kTransactionsSkipped[] = "transactions_skipped";

// False = not noted: there is no such table. `position`: up to where; empty = of no position, and then a
// standby need not take it, since outbox.maintain drops nothing there.
absl::StatusOr<bool> NoteSkipped(const PipelineSettings& options, const std::string& position,
                                 const std::string& detail);

}  // namespace walpost::operations
