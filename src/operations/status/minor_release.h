// MinorRelease - bugs of PostgreSQL that lose events, by the minor release that fixes them.
// Why: before May 2025 a walsender that has begun to read a transaction does not notice in it that another
//   one has edited the catalog. After ALTER PUBLICATION ... ADD TABLE beside an open transaction that has written to the table
//   it may leave out all later rows of it until the next connect, and nothing in the stream says so.
// Thread: any.
// Source: release notes of 13.21, 14.18, 15.13, 16.9 and 17.5: "Avoid data loss when DDL operations that
//   don't take a strong lock affect tables that are being logically replicated".
#pragma once

namespace walpost::operations {

// As PQserverVersion: 150013 is 15.13. The first release of the same major one with the fix; 0 = the
// first of all has it.
int FirstThatLearnsOfAddedTables(int server_version);

}  // namespace walpost::operations
