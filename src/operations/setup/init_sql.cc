#include "operations/setup/init_sql.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "operations/setup/init_messages.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
using postgres::SourceTable;

namespace {

// What follows means what pg_catalog has, whoever may create functions elsewhere. The files between do the
// same, each for itself, and keep what was there before under another name.
constexpr char kPinSearchPath[] =
    "SELECT pg_catalog.set_config('walpost.printed_search_path', "
    "pg_catalog.current_setting('search_path'), false);\n"
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);\n";
constexpr char kUnpinSearchPath[] =
    "\nSELECT pg_catalog.set_config('search_path', "
    "pg_catalog.current_setting('walpost.printed_search_path'), false);\n";

}  // namespace

bool IsOwnTable(const InitOptions& options, const SourceTable& table) {
  return table.schema == options.table_schema && table.table == "events";
}

SchemaChoice Choice(const InitOptions& options) {
  SchemaChoice choice;
  choice.own_table =
      std::any_of(options.source.tables.begin(), options.source.tables.end(),
                  [&](const SourceTable& table) { return IsOwnTable(options, table); });
  choice.partitioned = !options.plain_table;
  choice.messages = options.with_messages;
  choice.schema = options.table_schema;
  return choice;
}

std::string TableSql(const SourceTable& table) {
  return QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
}

std::string FirstPartitionsSql(const InitOptions& options) {
  return absl::StrFormat(
      "SELECT count(*) FROM %1$s.make_partitions('3 days', 'day') WHERE NOT EXISTS (SELECT FROM "
      "%1$s.partitions())",
      options.table_schema);
}

std::string CreatePublicationSql(const InitOptions& options) {
  std::vector<std::string> tables;
  for (const SourceTable& table : options.source.tables) {
    tables.push_back(TableSql(table));
  }
  return absl::StrFormat(
      "CREATE PUBLICATION %s%s WITH (publish = 'insert', publish_via_partition_root = "
      "true)",
      QuoteIdentifier(options.source.publication),
      tables.empty() ? "" : " FOR TABLE " + absl::StrJoin(tables, ", "));
}

std::string PrintSql(const InitOptions& options) {
  std::string sql = kPinSearchPath;
  for (const SchemaFile& file : SchemaFiles(Choice(options))) {
    sql += absl::StrFormat("\nBEGIN;\n%sCOMMIT;\n", file.sql);
  }
  if (Choice(options).own_table && !options.plain_table) {
    sql += absl::StrFormat("\n%s;\n", FirstPartitionsSql(options));
  }
  if (options.with_roles) {
    sql += absl::StrFormat("\n%s", RolesSql(options.table_schema));
  }
  sql += absl::StrFormat("\n-- Before the slot, always.\n%s;\n", CreatePublicationSql(options));
  sql += absl::StrFormat(
      "\n-- In a transaction of its own.\nSELECT * FROM "
      "pg_catalog.pg_create_logical_replication_slot(%s, "
      "'pgoutput');\n",
      QuoteLiteral(options.source.slot));
  sql += absl::StrFormat(
      "\nINSERT INTO walpost.pipeline (name, slot, publication, system_identifier, "
      "consistent_point, delivered_lsn)\n"
      "SELECT %s, slot_name, %s, (SELECT system_identifier FROM pg_control_system()), "
      "confirmed_flush_lsn, confirmed_flush_lsn\n"
      "FROM pg_replication_slots WHERE slot_name = %s;\n",
      QuoteLiteral(options.name), QuoteLiteral(options.source.publication),
      QuoteLiteral(options.source.slot));
  if (options.with_messages) {
    sql += absl::StrFormat("\n%s;\n", RecordPrefixesSql(options));
  }
  sql += options.revoke_emit ? absl::StrFormat("\n%s;\n", RevokeEmitSql(options)) : "";
  if (!options.progress_topic.empty()) {
    sql += absl::StrFormat(
        "\n-- In Kafka: topic %s, 1 partition, replication factor 3, cleanup.policy=compact, "
        "segment.ms=3600000, compression.type=uncompressed, max.message.bytes=1048588.\n",
        options.progress_topic);
  }
  return sql + kUnpinSearchPath;
}

}  // namespace walpost::operations
