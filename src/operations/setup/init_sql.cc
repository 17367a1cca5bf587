#include "operations/setup/init_sql.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/source_facts.h"
#include "base/status.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/setup/pipeline_record.h"
#include "operations/setup/schema_scripts.h"
#include "operations/trusted_owner.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kNameBytesMax = 63;

// The files say `outbox` where the schema's name stands, and nothing else by these words.
std::string InSchema(const char* sql, const std::string& schema) {
  return absl::StrReplaceAll(sql, {{"outbox.", schema + "."},
                                   {"'outbox'", "'" + schema + "'"},
                                   {"SCHEMA outbox", "SCHEMA " + schema},
                                   {"SCHEMA IF EXISTS outbox", "SCHEMA IF EXISTS " + schema}});
}

}  // namespace

std::vector<SchemaFile> SchemaFiles(const SchemaChoice& choice) {
  CHECK(IsPlainName(choice.schema));
  std::vector<SchemaFile> files;
  for (const SchemaScript& script : kSchemaScripts) {
    const bool wanted = script.version == 1   ? true
                        : script.version == 3 ? choice.messages
                        : script.version == 4 ? choice.own_table && choice.partitioned
                                              : choice.own_table;
    if (wanted) {
      files.push_back({script.version, script.name, InSchema(script.sql, choice.schema)});
    }
  }
  return files;
}

std::string RolesSql(const std::string& schema) { return InSchema(kRolesSql, schema); }

bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && !absl::ascii_isdigit(name[0]) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
         });
}

using postgres::Row;
using postgres::SqlConnection;

std::string WhatIsSent(const RecreateOptions& options, const Gap& gap) {
  if (options.leave_gap) {
    return absl::StrFormat(
        "a new slot begins now: events committed before that and not in Kafka are not sent%s\n",
        gap.from.valid() ? absl::StrFormat(", which are those after %s", gap.from.ToString()) : "");
  }
  std::string text =
      "a new slot begins now; then the rows from before it are sent that Kafka does not hold, ";
  if (gap.since_ms) {
    text += absl::StrFormat("of those created since %s", TimeText(*gap.since_ms));
  } else if (gap.from.valid() && gap.notes.valid()) {
    text +=
        absl::StrFormat("of those committed after %s, or not surely before", gap.from.ToString());
    if (gap.notes < gap.from) {
      text += absl::StrFormat("; what the database itself knows to be delivered ends at %s",
                              gap.notes.ToString());
    }
  } else if (gap.from.valid()) {
    text += absl::StrFormat(
        "of all: those committed before %s should be there, but the database has not noted how far "
        "was delivered, so they cannot be left out; what Kafka has deleted by its age is sent "
        "again, too; --since limits that",
        gap.from.ToString());
  } else {
    text +=
        "of all: how far Kafka had them is not known, so what Kafka has deleted by its age is sent "
        "again, too; --since limits that";
  }
  text += "\n";
  if (!options.init.source.message_prefixes.empty()) {
    text += "events of the gap that are messages stand in no table: they are not sent\n";
  }
  return text;
}

absl::StatusOr<std::string> WhatCannotBeSent(const InitOptions& options,
                                             SqlConnection* connection) {
  std::string text;
  for (const postgres::SourceTable& table : options.source.tables) {
    ASSIGN_OR_RETURN(
        const std::vector<Row> found,
        connection->Query("SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = "
                          "'events_ephemeral'",
                          {postgres::QuoteIdentifier(table.schema) + "." +
                           postgres::QuoteIdentifier(table.table)}));
    if (!found.empty()) {
      text += absl::StrFormat(
          "%s.%s keeps no rows (set_ephemeral): its events of the gap are not sent\n", table.schema,
          table.table);
    }
  }
  return text;
}

using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
using postgres::SourceTable;

namespace {

// What follows means what pg_catalog has, whoever may create functions elsewhere. The files between
// do the same, each for itself, and keep what was there before under another name.
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

namespace {

using base::FindOther;

constexpr int kMessagesSince = 140000;

// A second line where every role may make events; else nothing.
absl::StatusOr<std::string> WhoMayEmit(SqlConnection* connection) {
  ASSIGN_OR_RETURN(
      const auto rows,
      connection->Query("SELECT pg_catalog.string_agg(p.oid::regprocedure::text, ', ') FROM "
                        "pg_catalog.pg_proc p WHERE p.proname = 'pg_logical_emit_message' AND "
                        "pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')"));
  if (!rows.at(0).at(0)) {
    return std::string();
  }
  return absl::StrFormat(
      "\nwarning      any role may emit messages, and thus events: REVOKE EXECUTE ON FUNCTION %s "
      "FROM PUBLIC, or run init with --revoke-emit as superuser (docs/messages.md)",
      *rows.at(0).at(0));
}

}  // namespace

absl::Status CheckMessages(const InitOptions& options, SqlConnection* connection) {
  if (connection->server_version() < kMessagesSince) {
    return absl::FailedPreconditionError(
        absl::StrFormat("logical messages need PostgreSQL 14 or newer, %s has %d: use a table",
                        connection->host(), connection->server_version() / 10000));
  }
  const std::vector<std::string>& prefixes = options.source.message_prefixes;
  ASSIGN_OR_RETURN(const auto recorded, ReadPrefixes(connection, options.name));
  if (prefixes.empty() && recorded.empty()) {
    return absl::FailedPreconditionError(
        "messages.prefixes is empty: list the prefixes of the messages that are to be events");
  }
  ASSIGN_OR_RETURN(const auto slot, postgres::FindSlot(connection, options.source.slot));
  if (slot && slot->active && FindOther(prefixes, recorded) != nullptr) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "slot \"%s\" is in use by PID %d, which may be a walpost that does not read the new prefix "
        "yet and would pass over its events: stop it, run init, start it with this configuration; "
        "what is emitted meanwhile waits in the slot",
        slot->name, slot->active_pid));
  }
  return slot && recorded != prefixes
             ? CheckDeadLettersFrom(connection, options.name, slot->confirmed_flush_lsn)
             : absl::OkStatus();
}

absl::StatusOr<std::string> RecordPrefixes(const InitOptions& options, SqlConnection* connection) {
  const std::vector<std::string>& prefixes = options.source.message_prefixes;
  ASSIGN_OR_RETURN(const auto recorded, ReadPrefixes(connection, options.name));
  if (FindOther(prefixes, recorded) != nullptr) {
    // Who began to stream since CheckMessages may not read them; who begins now finds them
    // recorded.
    ASSIGN_OR_RETURN(const auto held, postgres::SlotHold::Take(options.source));
    RETURN_IF_ERROR(connection->Execute("BEGIN"));
    absl::Status done = connection->Execute(RecordPrefixesSql(options));
    done = done.ok() ? held.Check(connection) : done;
    RETURN_IF_ERROR(connection->EndTransaction(done));
  } else if (recorded != prefixes) {
    RETURN_IF_ERROR(connection->Execute(RecordPrefixesSql(options)));
  }
  ASSIGN_OR_RETURN(const std::string who, WhoMayEmit(connection));
  return absl::StrFormat("messages     %s %s%s",
                         prefixes.empty() ? "no prefix" : absl::StrJoin(prefixes, ", "),
                         recorded == prefixes ? "recorded before" : "recorded", who);
}

absl::Status RevokeEmit(const InitOptions& options, SqlConnection* connection) {
  RETURN_IF_ERROR(base::Annotate(connection->Execute(RevokeEmitSql(options)), "--revoke-emit"));
  // To a role that does not own the function PostgreSQL only says a warning.
  ASSIGN_OR_RETURN(const std::string who, WhoMayEmit(connection));
  return who.empty() ? absl::OkStatus()
                     : absl::FailedPreconditionError(
                           "--revoke-emit: any role may still emit messages: run it as superuser "
                           "(docs/messages.md)");
}

std::string RevokeEmitSql(const InitOptions& options) {
  // Whose rights outbox.emit_message has must keep it.
  return absl::StrFormat(
      "DO $walpost$ DECLARE emit regprocedure; emitter name; BEGIN "
      "SELECT owner.rolname INTO emitter FROM pg_proc p JOIN pg_namespace n ON n.oid = "
      "p.pronamespace JOIN pg_roles owner ON owner.oid = p.proowner WHERE "
      "n.nspname = %1$s AND p.proname = 'emit_message' AND %2$s "
      "LIMIT 1; IF FOUND THEN RAISE EXCEPTION 'emit_message belongs to role %%, which would gain "
      "the right', emitter USING ERRCODE = 'object_not_in_prerequisite_state'; END IF; "
      "FOR emit IN SELECT p.oid::regprocedure FROM pg_catalog.pg_proc p WHERE p.proname = "
      "'pg_logical_emit_message' AND p.pronamespace = 'pg_catalog'::regnamespace LOOP "
      "EXECUTE pg_catalog.format('REVOKE EXECUTE ON FUNCTION %%s FROM PUBLIC', emit); "
      "FOR emitter IN SELECT DISTINCT pg_catalog.pg_get_userbyid(p.proowner) FROM "
      "pg_catalog.pg_proc "
      "p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %1$s AND "
      "p.proname = 'emit_message' LOOP "
      "EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %%s TO %%I', emit, emitter); "
      "END LOOP; END LOOP; END $walpost$",
      QuoteLiteral(options.table_schema), kOwnerIsForeign);
}

std::string RecordPrefixesSql(const InitOptions& options) {
  std::vector<std::string> literals;
  for (const std::string& prefix : options.source.message_prefixes) {
    literals.push_back(QuoteLiteral(prefix));
  }
  return absl::StrFormat("UPDATE walpost.pipeline SET prefixes = ARRAY[%s]::text[] WHERE name = %s",
                         absl::StrJoin(literals, ", "), QuoteLiteral(options.name));
}

}  // namespace walpost::operations
