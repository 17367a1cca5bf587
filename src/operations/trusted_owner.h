// FindForeign - what is in the way when something in the database is used that another role may own.
// Why: who owns a function, a view or a table with a trigger has code of his run with the rights of
//   whoever uses it, and decides what is in it. So walpost uses what it finds by name only where its
//   owner is trusted: outbox_owner, and who has the rights of this role already, as itself, its members and
//   superusers do. That this role is a member of the owner makes nobody trusted: it gives the owner nothing.
//   The files of sql/ ask the same.
// Thread: blocking.
// Errors: those of SqlConnection.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// SQL, about a row `owner` of pg_roles: it is not trusted. pg_database_owner, to which schema public belongs
// from 15 on, has no rights of its own: it stands for the owner of the database.
inline constexpr const char* kOwnerIsForeign =
    "(owner.rolname <> 'outbox_owner' AND NOT pg_has_role(CASE owner.rolname WHEN "
    "'pg_database_owner' THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) "
    "ELSE owner.oid END, current_user, 'USAGE'))";

struct ForeignObject {
  std::string what;  // such as `schema shop`, `shop.events` or `shop.emit()`
  std::string owner;
};

// The first of `objects`, SQL with the columns `what` and `owner` (an OID), whose owner is not trusted.
absl::StatusOr<std::optional<ForeignObject>> FindForeign(
    postgres::SqlConnection* connection, const std::string& objects,
    const std::vector<postgres::Cell>& parameters);

absl::Status Rejection(const ForeignObject& foreign);

// The schemas themselves and what is in them. kFailedPrecondition names what is not trusted.
absl::Status RequireTrustedSchemas(postgres::SqlConnection* connection,
                                   const std::vector<std::string>& schemas);

}  // namespace walpost::operations
