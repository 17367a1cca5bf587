// What a failure to connect, to start, or to go on streaming means: one table for each phase.
// Why: the same SQLSTATE means different things before and after START, and every edge of the
//   project decides by StreamEnd alone. SQLSTATE decides, never the message, which may be
//   translated.
// Thread: any; pure. Reasons where the enum has no word of its own: an unknown database or role is
//   auth_failed (the server rejects the login); a server or option the protocol cannot serve is
//   schema_mismatch when the configuration asks for too much, protocol_error when something between
//   us is not PostgreSQL; wal_level is slot_missing (no slot can exist).
// Source: PostgreSQL manual, "PostgreSQL Error Codes".
#pragma once

#include <string>
#include <string_view>

#include "base/state.h"

namespace walpost::postgres {

// sqlstate - the error codes of PostgreSQL that walpost decides by, by the server's own names.
// Thread: any.
// Source: https://www.postgresql.org/docs/current/errcodes-appendix.html.
namespace sqlstate {
constexpr std::string_view kConfigurationLimitExceeded = "53400";
constexpr std::string_view kDeadlockDetected = "40P01";
constexpr std::string_view kDuplicateObject = "42710";
constexpr std::string_view kInsufficientPrivilege = "42501";
constexpr std::string_view kInternalError = "XX000";
constexpr std::string_view kInvalidAuthorization = "28000";
constexpr std::string_view kInvalidCatalogName = "3D000";  // no such database
constexpr std::string_view kInvalidParameterValue = "22023";
constexpr std::string_view kInvalidPassword = "28P01";
constexpr std::string_view kInvalidSchemaName = "3F000";
constexpr std::string_view kLockNotAvailable = "55P03";
constexpr std::string_view kObjectInUse = "55006";
constexpr std::string_view kObjectNotInPrerequisiteState = "55000";
constexpr std::string_view kProgramLimitExceeded = "54000";
constexpr std::string_view kProtocolViolation = "08P01";
constexpr std::string_view kReadOnlySqlTransaction = "25006";
constexpr std::string_view kSerializationFailure = "40001";
constexpr std::string_view kUndefinedColumn = "42703";
constexpr std::string_view kUndefinedFile = "58P01";
constexpr std::string_view kUndefinedFunction = "42883";
constexpr std::string_view kUndefinedObject = "42704";
constexpr std::string_view kUndefinedTable = "42P01";
}  // namespace sqlstate

struct ServerError;

// Where a connection leads, for messages: `db1:5432`, database and role.
struct Endpoint {
  std::string host;
  std::string database;
  std::string user;

  // host, database "name"
  std::string ToString() const;
};

base::StreamEnd OperatorEnd(base::HaltReason reason, std::string text, std::string sqlstate = "");
base::StreamEnd LostEnd(std::string text, std::string sqlstate = "");

// The server (sqlstate set) or libpq (empty) rejected the connection. `text` is libpq's message.
base::StreamEnd ConnectFailure(std::string_view sqlstate, std::string_view text,
                               const Endpoint& endpoint);

// A preflight query failed.
base::StreamEnd QueryFailure(std::string_view what, const ServerError& error,
                             const Endpoint& endpoint);

// TIMELINE_HISTORY, `command`, was rejected. Only a file that is not there waits for an operator.
base::StreamEnd HistoryFailure(std::string_view command, const ServerError& error,
                               const Endpoint& endpoint);

// The history that `command` gave, or did not give, says nothing.
base::StreamEnd HistoryUnreadable(std::string_view command, std::string_view cause,
                                  const Endpoint& endpoint);

// START_REPLICATION was rejected.
base::StreamEnd StartFailure(const ServerError& error, std::string_view slot,
                             const Endpoint& endpoint);

// The stream ended with an error.
base::StreamEnd StreamFailure(const ServerError& error, std::string_view slot,
                              std::string_view publication, const Endpoint& endpoint);

// The last SQLSTATE in a message that libpq made with PQERRORS_VERBOSE; empty when there is none.
std::string SqlstateInVerboseMessage(std::string_view message);

// True for a message that came from a server: "SEVERITY:  text", in whatever language.
bool IsServerMessage(std::string_view message);

// For SqlConnection: kUnavailable, kPermissionDenied or kFailedPrecondition, with the SQLSTATE in
// the text.
absl::Status SqlStatus(std::string_view what, const ServerError& error);

}  // namespace walpost::postgres
