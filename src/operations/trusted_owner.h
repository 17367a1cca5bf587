// FindForeign - what is in the way when something in the database is used that another role may
// own.
// Why: who owns a function, a view or a table with a trigger has code of his run with the rights of
//   whoever uses it, and decides what is in it. So walpost uses what it finds by name only where
//   its owner is trusted: outbox_owner, and who has the rights of this role already, as itself, its
//   members and superusers do. That this role is a member of the owner makes nobody trusted: it
//   gives the owner nothing. The files of sql/ ask the same.
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

// FindGrants - rights on what walpost made that its own roles do not have by R__roles.sql.
// Why: whose things are trusted (trusted_owner.h) says little where others may change them. Who may
//   create in a schema of walpost's can put a function there that fits a call better than walpost's
//   own; and who may write to its tables decides which events are sent. The files of sql/ ask the
//   same.
// Thread: blocking.
// Errors: those of SqlConnection.
inline constexpr const char* kEveryTable = "every table";  // of the cluster

struct Grant {
  std::string what;  // such as `schema outbox` or `outbox.retention_note`
  std::string role;  // PUBLIC = everybody
  std::string cure;  // SQL
};

// Who may create in these schemas, and neither is trusted nor has the rights of the schema's owner.
absl::StatusOr<std::vector<Grant>> FindCreators(postgres::SqlConnection* connection,
                                                const std::vector<std::string>& schemas);

absl::Status RequireNoCreators(postgres::SqlConnection* connection,
                               const std::vector<std::string>& schemas);

// What a role that is neither trusted, nor one of R__roles.sql that has to, may do with walpost's
// tables in these schemas, beside reading them and inserting events; and what it has built on them.
// It is walpost.rights_of_others in V1__walpost.up.sql that says so.
absl::StatusOr<std::vector<Grant>> FindWriters(postgres::SqlConnection* connection,
                                               const std::vector<std::string>& schemas);

// Fails where a table of walpost's in these schemas has code of such a role, such as a CHECK or an
// index, which even a query of the table may run. Asks walpost's own function, so their owners are
// to be trusted.
absl::Status RequireNoCode(postgres::SqlConnection* connection,
                           const std::vector<std::string>& schemas);

// Those of the schemas in which files of sql/ have made something.
absl::StatusOr<std::vector<std::string>> OwnSchemas(postgres::SqlConnection* connection,
                                                    const std::vector<std::string>& schemas);

// SQL, about a row `owner` of pg_roles: it is not trusted. pg_database_owner, to which schema
// public belongs from 15 on, has no rights of its own: it stands for the owner of the database.
inline constexpr const char* kOwnerIsForeign =
    "(owner.rolname <> 'outbox_owner' AND NOT pg_has_role(CASE owner.rolname WHEN "
    "'pg_database_owner' THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) "
    "ELSE owner.oid END, current_user, 'USAGE'))";

struct ForeignObject {
  std::string what;  // such as `schema shop`, `shop.events` or `shop.emit()`
  std::string owner;
};

// The first of `objects`, SQL with the columns `what` and `owner` (an OID), whose owner is not
// trusted.
absl::StatusOr<std::optional<ForeignObject>> FindForeign(
    postgres::SqlConnection* connection, const std::string& objects,
    const std::vector<postgres::Cell>& parameters);

absl::Status Rejection(const ForeignObject& foreign);

// The schemas themselves and what is in them. kFailedPrecondition names what is not trusted.
absl::Status RequireTrustedSchemas(postgres::SqlConnection* connection,
                                   const std::vector<std::string>& schemas);

}  // namespace walpost::operations
