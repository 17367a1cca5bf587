// sqlstate - the error codes of PostgreSQL that walpost decides by, by the server's own names.
// Thread: any.
// Source: https://www.postgresql.org/docs/current/errcodes-appendix.html.
#pragma once

#include <string_view>

namespace walpost::postgres::sqlstate {

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

}  // namespace walpost::postgres::sqlstate
