#include "operations/granted_rights.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/trusted_owner.h"

namespace walpost::operations {
namespace {

using postgres::Row;
using postgres::SqlConnection;

// The owner's rights are more than any right that he grants. A grant is revoked by who has given it.
constexpr char kCreators[] =
    "SELECT 'schema ' || quote_ident(n.nspname), owner.rolname, CASE acl.grantor WHEN n.nspowner "
    "THEN '' ELSE format('SET ROLE %%s; ', acl.grantor::regrole) END || format('REVOKE CREATE ON "
    "SCHEMA %%I FROM %%s CASCADE', n.nspname, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE "
    "acl.grantee::regrole::text END) FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) AS acl "
    "JOIN (SELECT oid, rolname FROM pg_roles UNION ALL SELECT 0::oid, 'PUBLIC') AS owner ON "
    "owner.oid = acl.grantee WHERE n.nspname = ANY (%s) AND acl.privilege_type = 'CREATE' AND NOT "
    "pg_has_role(acl.grantee, n.nspowner, 'USAGE') AND %s ORDER BY 3";

constexpr char kWriters[] =
    "SELECT c.oid::regclass::text, owner.rolname, CASE acl.grantor WHEN c.relowner THEN '' ELSE "
    "format('SET ROLE %%s; ', acl.grantor::regrole) END || format('REVOKE %%s ON %%s FROM %%s "
    "CASCADE', string_agg(acl.privilege, ', ' ORDER BY acl.privilege), c.oid::regclass, CASE "
    "owner.oid WHEN 0 THEN 'PUBLIC' ELSE owner.oid::regrole::text END) FROM pg_class c JOIN "
    "pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL (SELECT CASE n.nspname WHEN "
    "'walpost' THEN '{pipeline,schema_version,dead_letters,dead_letter_count}' WHEN 'inbox' THEN "
    "'{processed_events,position,one_at_a_time}' ELSE '{events,retention_note,idempotency}' "
    "END::name[] AS names) AS ours CROSS JOIN LATERAL (SELECT privilege_type AS privilege, "
    "privilege_type, grantor, grantee FROM aclexplode(c.relacl) UNION ALL SELECT format('%%s "
    "(%%I)', a.privilege_type, attname), a.privilege_type, a.grantor, a.grantee FROM pg_attribute "
    "CROSS JOIN aclexplode(attacl) AS a WHERE attrelid = c.oid AND NOT attisdropped) AS acl JOIN "
    "(SELECT oid, rolname FROM pg_roles UNION ALL SELECT 0::oid, 'PUBLIC') AS owner ON owner.oid "
    "= acl.grantee WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'p') AND (c.relname = ANY "
    "(ours.names) OR EXISTS (SELECT FROM pg_inherits i JOIN pg_class e ON e.oid = i.inhparent "
    "WHERE i.inhrelid = c.oid AND e.relnamespace = n.oid AND e.relname = ANY (ours.names))) AND "
    "acl.privilege_type <> 'SELECT' AND NOT (c.relname = 'events' AND acl.privilege_type = "
    "'INSERT') AND owner.rolname NOT IN ('outbox_relay', 'outbox_operator') AND NOT "
    "pg_has_role(owner.oid, c.relowner, 'USAGE') AND %s GROUP BY c.oid, c.relowner, owner.oid, "
    "owner.rolname, acl.grantor ORDER BY acl.grantor <> c.relowner, 1, 2";

absl::StatusOr<std::vector<Grant>> Find(SqlConnection* connection, const std::string& sql) {
  ASSIGN_OR_RETURN(const std::vector<Row> rows, connection->Query(sql));
  std::vector<Grant> grants;
  for (const Row& row : rows) {
    grants.push_back({row.at(0).value_or(""), row.at(1).value_or(""), row.at(2).value_or("")});
  }
  return grants;
}

}  // namespace

absl::StatusOr<std::vector<Grant>> FindCreators(SqlConnection* connection,
                                                const std::vector<std::string>& schemas) {
  return Find(connection,
              absl::StrFormat(kCreators, postgres::ArrayLiteral(schemas), kOwnerIsForeign));
}

absl::StatusOr<std::vector<Grant>> FindWriters(SqlConnection* connection,
                                               const std::vector<std::string>& schemas) {
  return Find(connection,
              absl::StrFormat(kWriters, postgres::ArrayLiteral(schemas), kOwnerIsForeign));
}

absl::Status RequireNoCreators(SqlConnection* connection, const std::vector<std::string>& schemas) {
  ASSIGN_OR_RETURN(const std::vector<Grant> grants, FindCreators(connection, schemas));
  return grants.empty() ? absl::OkStatus()
                        : absl::FailedPreconditionError(absl::StrFormat(
                              "%s lets others create in it: role %s, whose code would run with the "
                              "rights of whoever runs this: %s",
                              grants[0].what, grants[0].role, grants[0].revoke));
}

absl::StatusOr<std::vector<std::string>> OwnSchemas(SqlConnection* connection,
                                                    const std::vector<std::string>& schemas) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(absl::StrFormat(
          "SELECT n.nspname FROM pg_namespace n WHERE n.nspname = ANY (%s) AND EXISTS (SELECT FROM "
          "pg_proc p WHERE p.pronamespace = n.oid AND p.proname IN ('lock_tables', 'check_event', "
          "'emit_message', 'accept_position')) ORDER BY 1",
          postgres::ArrayLiteral(schemas))));
  std::vector<std::string> own;
  for (const Row& row : rows) {
    own.push_back(row.at(0).value_or(""));
  }
  return own;
}

}  // namespace walpost::operations
