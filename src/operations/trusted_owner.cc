#include "operations/trusted_owner.h"

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::operations {
namespace {

using postgres::Row;
using postgres::SqlConnection;

// The owner's rights are more than any right that he grants. A grant is revoked by who has given
// it.
constexpr char kCreators[] =
    "SELECT 'schema ' || quote_ident(n.nspname), owner.rolname, CASE acl.grantor WHEN n.nspowner "
    "THEN '' ELSE format('SET ROLE %%s; ', acl.grantor::regrole) END || format('REVOKE CREATE ON "
    "SCHEMA %%I FROM %%s CASCADE', n.nspname, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE "
    "acl.grantee::regrole::text END) FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) AS acl "
    "JOIN (SELECT oid, rolname FROM pg_roles UNION ALL SELECT 0::oid, 'PUBLIC') AS owner ON "
    "owner.oid = acl.grantee WHERE n.nspname = ANY (%s) AND acl.privilege_type = 'CREATE' AND NOT "
    "pg_has_role(acl.grantee, n.nspowner, 'USAGE') AND %s ORDER BY 3";

constexpr char kFunction[] = "walpost.rights_of_others(name[])";
// Calling it is to trust it.
constexpr char kFunctionOwners[] =
    "SELECT 'schema walpost' AS what, nspowner AS owner FROM pg_namespace WHERE nspname = "
    "'walpost' "
    "UNION ALL SELECT oid::regprocedure::text, proowner FROM pg_proc WHERE oid = "
    "to_regprocedure($1)";

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
  if (schemas.empty()) {
    return std::vector<Grant>();
  }
  ASSIGN_OR_RETURN(const auto foreign, FindForeign(connection, kFunctionOwners, {kFunction}));
  if (foreign) {
    return Rejection(*foreign);
  }
  ASSIGN_OR_RETURN(const std::vector<Row> made,
                   connection->Query("SELECT to_regprocedure($1) IS NOT NULL", {kFunction}));
  if (made.at(0).at(0) != "t") {
    return absl::NotFoundError(absl::StrFormat(
        "function %s is missing, which says what others may do: `walpost init` makes it",
        kFunction));
  }
  return Find(connection,
              absl::StrFormat("SELECT what, role, cure FROM walpost.rights_of_others(%s::name[])",
                              postgres::ArrayLiteral(schemas)));
}

absl::Status RequireNoCreators(SqlConnection* connection, const std::vector<std::string>& schemas) {
  ASSIGN_OR_RETURN(const std::vector<Grant> grants, FindCreators(connection, schemas));
  return grants.empty() ? absl::OkStatus()
                        : absl::FailedPreconditionError(absl::StrFormat(
                              "%s lets others create in it: role %s, whose code would run with the "
                              "rights of whoever runs this: %s",
                              grants[0].what, grants[0].role, grants[0].cure));
}

absl::Status RequireNoCode(SqlConnection* connection, const std::vector<std::string>& schemas) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query("SELECT to_regprocedure('walpost.reject_code_of_others(name[])') IS NOT "
                        "NULL, (SELECT min(c.oid::regclass::text) FROM pg_class c JOIN "
                        "pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'walpost' AND "
                        "c.relname IN ('pipeline', 'schema_version', 'dead_letters', "
                        "'dead_letter_count'))"));
  if (rows.at(0).at(0) == "t") {
    return connection
        ->Query(absl::StrFormat("SELECT walpost.reject_code_of_others(%s::name[])",
                                postgres::ArrayLiteral(schemas)))
        .status();
  }
  return !rows[0].at(1) ? absl::OkStatus()
                        : absl::FailedPreconditionError(
                              absl::StrFormat("%s was not made by walpost's files: DROP it; what "
                                              "whoever made it has put into it "
                                              "would run with the rights of whoever runs this",
                                              *rows[0].at(1)));
}

absl::StatusOr<std::vector<std::string>> OwnSchemas(SqlConnection* connection,
                                                    const std::vector<std::string>& schemas) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(absl::StrFormat(
          "SELECT n.nspname FROM pg_namespace n WHERE n.nspname = ANY (%s) AND EXISTS (SELECT FROM "
          "pg_proc p WHERE p.pronamespace = n.oid AND p.proname IN ('change_tables', "
          "'check_event', "
          "'emit_message', 'accept_position')) ORDER BY 1",
          postgres::ArrayLiteral(schemas))));
  std::vector<std::string> own;
  for (const Row& row : rows) {
    own.push_back(row.at(0).value_or(""));
  }
  return own;
}

using postgres::Cell;

absl::StatusOr<std::optional<ForeignObject>> FindForeign(SqlConnection* connection,
                                                         const std::string& objects,
                                                         const std::vector<Cell>& parameters) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> found,
      connection->Query(
          absl::StrFormat("SELECT what, owner.rolname FROM (%s) AS objects (what, owner) JOIN "
                          "pg_roles owner ON owner.oid = objects.owner WHERE %s ORDER BY 1 LIMIT 1",
                          objects, kOwnerIsForeign),
          parameters));
  if (found.empty()) {
    return std::nullopt;
  }
  return ForeignObject{found[0].at(0).value_or(""), found[0].at(1).value_or("")};
}

absl::Status Rejection(const ForeignObject& foreign) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s belongs to role %s, whose code would run with the rights of whoever runs this: run it as "
      "that role, or DROP it; ALTER ... OWNER TO is not enough, since its constraints, defaults, "
      "indexes, rules and functions stay what that role has made of them",
      foreign.what, foreign.owner));
}

absl::Status RequireTrustedSchemas(SqlConnection* connection,
                                   const std::vector<std::string>& schemas) {
  ASSIGN_OR_RETURN(
      const auto foreign,
      FindForeign(
          connection,
          absl::StrFormat(
              "SELECT what, owner FROM (SELECT 'schema ' || quote_ident(nspname), nspowner, "
              "nspname FROM pg_namespace UNION ALL SELECT c.oid::regclass::text, c.relowner, "
              "n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
              "c.relkind IN ('r', 'p', 'v', 'm', 'f') UNION ALL SELECT p.oid::regprocedure::text, "
              "p.proowner, n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = "
              "p.pronamespace) AS placed (what, owner, place) WHERE place = ANY (%s)",
              postgres::ArrayLiteral(schemas)),
          {}));
  return foreign ? Rejection(*foreign) : absl::OkStatus();
}

}  // namespace walpost::operations
