// CheckServer - the part of `check` about the server itself: its release, room for slots and
// walsenders, how much more WAL our slot may keep, settings that can take it away, and the clock.
// Thread: blocking.
// Source: https://www.postgresql.org/docs/current/runtime-config-replication.html.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "operations/status/check_line.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// `now` is asked before and after the server is.
std::vector<CheckLine> CheckServer(
    const std::string& slot, postgres::SqlConnection* connection,
    const std::function<std::chrono::system_clock::time_point()>& now);

}  // namespace walpost::operations
