// CheckServer - the part of `check` about the server itself: its release, room for slots and
// walsenders, how much more WAL our slot may keep, settings that can take it away, and the clock.
// Thread: blocking.
// Source: https://www.postgresql.org/docs/current/runtime-config-replication.html.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "operations/outcome.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// Version - which libraries this process really runs with.
std::string VersionText(const std::string& version);

// MinorRelease - bugs of PostgreSQL that lose events, by the minor release that fixes them.
// Why: before May 2025 a walsender that has begun to read a transaction does not notice in it that
//   another one has edited the catalog. After ALTER PUBLICATION ... ADD TABLE beside an open
//   transaction that has written to the table it may leave out all later rows of it until the next
//   connect, and nothing in the stream says so.
// Thread: any.
// Source: release notes of 13.21, 14.18, 15.13, 16.9 and 17.5: "Avoid data loss when DDL operations
//   that don't take a strong lock affect tables that are being logically replicated".

// As PQserverVersion: 150013 is 15.13. The first release of the same major one with the fix; 0 =
// the first of all has it.
int FirstThatLearnsOfAddedTables(int server_version);

// `now` is asked before and after the server is.
std::vector<CheckLine> CheckServer(
    const std::string& slot, postgres::SqlConnection* connection,
    const std::function<std::chrono::system_clock::time_point()>& now);

}  // namespace walpost::operations
