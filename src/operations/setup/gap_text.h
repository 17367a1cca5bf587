// GapText - what `slot recreate` says it will send of a gap, and what it cannot.
// Thread: WhatCannotBeSent blocks.
// Errors: those of SqlConnection.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "operations/setup/slot_move.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

std::string WhatIsSent(const RecreateOptions& options, const Gap& gap);

// Of a table that keeps nothing there is nothing to send.
absl::StatusOr<std::string> WhatCannotBeSent(const InitOptions& options,
                                             postgres::SqlConnection* connection);

}  // namespace walpost::operations
