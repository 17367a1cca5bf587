// CheckTables - the part of `check` about the tables themselves: which files of sql/ are in force,
// and what stands in the way of keeping rows, dropping them and sending them again.
// Thread: blocking.
#pragma once

#include <string>
#include <vector>

#include "operations/status/check_line.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

std::vector<CheckLine> CheckTables(const std::vector<outbox::TableOptions>& tables,
                                   const std::string& publication,
                                   postgres::SqlConnection* connection);

}  // namespace walpost::operations
