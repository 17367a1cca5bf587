#include "operations/setup/init_messages.h"

#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/source_facts.h"
#include "base/status.h"
#include "operations/setup/pipeline_record.h"
#include "operations/setup/schema_scripts.h"
#include "operations/trusted_owner.h"
#include "postgres/slot_hold.h"
#include "postgres/slots.h"

namespace walpost::operations {
namespace {

using base::FindOther;
using postgres::QuoteLiteral;
using postgres::SqlConnection;

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
    // Who began to stream since CheckMessages may not read them; who begins now finds them recorded.
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
