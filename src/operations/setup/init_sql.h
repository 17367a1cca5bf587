// InitSql - the statements of `walpost init`, as it executes them and as it prints them.
// Thread: any; pure.
#pragma once

#include <string>

#include "operations/setup/init.h"
#include "operations/setup/schema_files.h"
#include "postgres/connect.h"

namespace walpost::operations {

// Whether init makes it.
bool IsOwnTable(const InitOptions& options, const postgres::SourceTable& table);

SchemaChoice Choice(const InitOptions& options);

std::string TableSql(const postgres::SourceTable& table);

// Of a table that has none yet; from then on it is outbox.maintain's.
std::string FirstPartitionsSql(const InitOptions& options);

std::string CreatePublicationSql(const InitOptions& options);

// All of it, for a DBA to execute.
std::string PrintSql(const InitOptions& options);

}  // namespace walpost::operations
