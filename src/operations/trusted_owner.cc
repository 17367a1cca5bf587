#include "operations/trusted_owner.h"

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::operations {

using postgres::Cell;
using postgres::Row;
using postgres::SqlConnection;

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
