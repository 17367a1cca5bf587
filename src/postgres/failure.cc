#include "postgres/failure.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "postgres/connection.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;
using base::StreamEnd;

std::string_view ClassOf(std::string_view sqlstate) { return sqlstate.substr(0, 2); }

// Class 08 connection, 53 resources, 57 operator intervention, 58 system, 40 rollback, 25 and 55
// state, XX internal, and a server that is short of transaction ids: another attempt may succeed.
bool Passes(std::string_view sqlstate) {
  if (sqlstate == sqlstate::kProgramLimitExceeded) {
    return true;
  }
  for (const std::string_view passing : {"", "08", "53", "57", "58", "40", "25", "55", "XX"}) {
    if (ClassOf(sqlstate) == passing) {
      return true;
    }
  }
  return false;
}

// Somebody else was in the way, or the server is just becoming a standby.
bool BusyNow(std::string_view sqlstate) {
  return sqlstate == sqlstate::kSerializationFailure || sqlstate == sqlstate::kDeadlockDetected ||
         sqlstate == sqlstate::kLockNotAvailable || sqlstate == sqlstate::kReadOnlySqlTransaction;
}

absl::StatusCode CodeOf(HaltReason reason) {
  switch (reason) {
    case HaltReason::kAuthFailed:
      return absl::StatusCode::kPermissionDenied;
    case HaltReason::kSlotMissing:
    case HaltReason::kPublicationMissing:
      return absl::StatusCode::kNotFound;
    default:
      return absl::StatusCode::kFailedPrecondition;
  }
}

std::string LoginAdvice(std::string_view sqlstate, const Endpoint& endpoint) {
  if (sqlstate == sqlstate::kInvalidAuthorization) {
    return absl::StrFormat(
        "check the role and pg_hba.conf, which needs a line for database \"%s\" and role \"%s\" "
        "(its keyword `replication` does not match logical replication connections)",
        endpoint.database, endpoint.user);
  }
  if (ClassOf(sqlstate) == "28") {
    return "check the password in source.conninfo, PGPASSWORD, the service or the password file";
  }
  if (sqlstate == sqlstate::kInsufficientPrivilege) {
    return absl::StrFormat(
        "give the role the right to replicate: ALTER ROLE \"%s\" REPLICATION (managed services: "
        "for example GRANT rds_replication TO \"%s\")",
        endpoint.user, endpoint.user);
  }
  if (sqlstate == sqlstate::kInvalidCatalogName) {
    return "correct the database name in source.conninfo";
  }
  return "correct source.conninfo";
}

}  // namespace

std::string Endpoint::ToString() const {
  return absl::StrFormat("%s, database \"%s\"", host, database);
}

StreamEnd OperatorEnd(HaltReason reason, std::string text, std::string sqlstate) {
  StreamEnd end;
  end.kind = StreamEnd::Kind::kOperator;
  end.reason = reason;
  end.status = absl::Status(CodeOf(reason), text);
  end.sqlstate = std::move(sqlstate);
  return end;
}

StreamEnd LostEnd(std::string text, std::string sqlstate) {
  StreamEnd end;
  end.kind = StreamEnd::Kind::kLost;
  end.status = absl::UnavailableError(text);
  end.sqlstate = std::move(sqlstate);
  return end;
}

StreamEnd ConnectFailure(std::string_view sqlstate, std::string_view text,
                         const Endpoint& endpoint) {
  const std::string message = OneLine(text);
  const bool login = ClassOf(sqlstate) == "28" || sqlstate == sqlstate::kInsufficientPrivilege ||
                     sqlstate == sqlstate::kInvalidCatalogName;
  if (login || !Passes(sqlstate)) {
    return OperatorEnd(HaltReason::kAuthFailed,
                       absl::StrFormat("connecting to PostgreSQL was rejected: %s [%s]; %s",
                                       message, sqlstate, LoginAdvice(sqlstate, endpoint)),
                       std::string(sqlstate));
  }
  std::string advice;
  if (sqlstate == sqlstate::kProtocolViolation) {
    advice = "; a connection pooler that does not know replication? connect to the server itself";
  }
  return LostEnd(absl::StrFormat("connecting to PostgreSQL failed: %s%s", message, advice),
                 std::string(sqlstate));
}

StreamEnd QueryFailure(std::string_view what, const ServerError& error, const Endpoint& endpoint) {
  std::string text = absl::StrFormat("%s on %s failed: %s%s", what, endpoint.ToString(), error.text,
                                     error.sqlstate.empty() ? "" : " [" + error.sqlstate + "]");
  if (error.sqlstate == sqlstate::kLockNotAvailable) {
    text += "; a transaction holds a lock on the table: pg_locks and pg_stat_activity say which";
  }
  if (Passes(error.sqlstate)) {
    return LostEnd(text, error.sqlstate);
  }
  if (error.sqlstate == sqlstate::kInsufficientPrivilege) {
    return OperatorEnd(HaltReason::kAuthFailed, text, error.sqlstate);
  }
  return OperatorEnd(HaltReason::kProtocolError,
                     text + "; where a pooler is between, connect to the server itself",
                     error.sqlstate);
}

StreamEnd HistoryFailure(std::string_view command, const ServerError& error,
                         const Endpoint& endpoint) {
  return error.sqlstate == sqlstate::kUndefinedFile
             ? HistoryUnreadable(command, error.text, endpoint)
             : QueryFailure(command, error, endpoint);
}

// Without it nobody can say on which timeline our progress lies.
StreamEnd HistoryUnreadable(std::string_view command, std::string_view cause,
                            const Endpoint& endpoint) {
  return OperatorEnd(
      HaltReason::kTimelineChanged,
      absl::StrFormat("%s on %s cannot be read: %s; restore the .history file to pg_wal", command,
                      endpoint.ToString(), cause));
}

StreamEnd StartFailure(const ServerError& error, std::string_view slot, const Endpoint& endpoint) {
  const std::string text = absl::StrFormat(
      "START_REPLICATION of slot \"%s\" on %s failed: %s%s", slot, endpoint.ToString(), error.text,
      error.sqlstate.empty() ? "" : " [" + error.sqlstate + "]");
  if (error.sqlstate == sqlstate::kObjectInUse) {
    StreamEnd end = LostEnd(text, error.sqlstate);
    end.kind = StreamEnd::Kind::kSlotInUse;
    return end;
  }
  if (error.sqlstate == sqlstate::kUndefinedObject) {
    return OperatorEnd(HaltReason::kSlotMissing, text, error.sqlstate);
  }
  if (error.sqlstate == sqlstate::kInsufficientPrivilege || ClassOf(error.sqlstate) == "28") {
    return OperatorEnd(HaltReason::kAuthFailed, text, error.sqlstate);
  }
  // 55000 says "lost", "other database" and "synced standby" alike: the next preflight reads which.
  // An option the server does not know is XX000, which would never pass.
  if (Passes(error.sqlstate) && error.sqlstate != sqlstate::kInternalError) {
    return LostEnd(text, error.sqlstate);
  }
  return OperatorEnd(HaltReason::kProtocolError, text, error.sqlstate);
}

namespace {

// libpq's own words, which no locale translates here: it holds a whole row or message in memory.
bool IsOutOfMemory(std::string_view text) {
  return text.find("cannot allocate memory for input buffer") != std::string_view::npos ||
         text.find("out of memory") != std::string_view::npos;
}

}  // namespace

StreamEnd StreamFailure(const ServerError& error, std::string_view slot,
                        std::string_view publication, const Endpoint& endpoint) {
  const std::string text =
      absl::StrFormat("streaming from slot \"%s\" on %s ended: %s%s", slot, endpoint.ToString(),
                      error.text, error.sqlstate.empty() ? "" : " [" + error.sqlstate + "]");
  const std::string_view error_class = ClassOf(error.sqlstate);
  StreamEnd end;
  if (error.sqlstate.empty() && IsOutOfMemory(error.text)) {
    // It comes again at the same position: not a connection that was lost.
    end = LostEnd(
        absl::StrFormat("%s; a row or message is larger than the memory walpost may have", text),
        error.sqlstate);
    end.kind = StreamEnd::Kind::kServerError;
  } else if (error.sqlstate == sqlstate::kUndefinedObject) {
    end = OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat("%s; publication \"%s\" did not exist at the WAL position being decoded "
                        "(dropped and created again, or created after the slot). Creating it now "
                        "does not help: docs/runbook.md, publication_missing, says how to go on",
                        text, publication),
        error.sqlstate);
  } else if (error.sqlstate.empty() || error_class == "08" || error_class == "57" ||
             error_class == "53" || error.sqlstate == sqlstate::kObjectNotInPrerequisiteState) {
    // 55000: the slot was invalidated; the next preflight reads it in the catalog and says how.
    end = LostEnd(text, error.sqlstate);
  } else {
    end = LostEnd(text, error.sqlstate);
    end.kind = StreamEnd::Kind::kServerError;
  }
  end.no_binary_form = error.sqlstate == sqlstate::kUndefinedFunction;
  if (end.no_binary_form) {
    end.status = absl::UnavailableError(text + "; the next connection gets all values as text");
  }
  end.context = error.context;
  return end;
}

std::string SqlstateInVerboseMessage(std::string_view message) {
  std::string found;
  // "FATAL:  28P01: text": two spaces follow only the severity of a server's message.
  for (std::size_t at = message.find(":  "); at != std::string_view::npos;
       at = message.find(":  ", at + 1)) {
    const std::string_view code = message.substr(at + 3, 6);
    bool valid = code.size() == 6 && code[5] == ':';
    for (const char c : code.substr(0, 5)) {
      valid = valid && ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'));
    }
    if (valid) {
      found = std::string(code.substr(0, 5));
    }
  }
  return found;
}

bool IsServerMessage(std::string_view message) {
  return message.find(":  ") != std::string_view::npos;
}

absl::Status SqlStatus(std::string_view what, const ServerError& error) {
  const std::string text = error.sqlstate.empty()
                               ? absl::StrFormat("%s: %s", what, error.text)
                               : absl::StrFormat("%s: %s [%s]", what, error.text, error.sqlstate);
  const std::string_view error_class = ClassOf(error.sqlstate);
  if (error_class == "28" || error.sqlstate == sqlstate::kInsufficientPrivilege) {
    return absl::PermissionDeniedError(text);
  }
  if (error_class.empty() || error_class == "08" || error_class == "57" || error_class == "53" ||
      BusyNow(error.sqlstate)) {
    return absl::UnavailableError(text);
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace walpost::postgres
