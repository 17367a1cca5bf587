#include "postgres/connection.h"

#include <glog/logging.h>
#include <libpq-fe.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/text.h"
#include "postgres/failure.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

std::string Field(const PGresult* result, int code) {
  const char* value = PQresultErrorField(result, code);
  return value == nullptr ? std::string() : OneLine(value);
}

}  // namespace

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (!space) {
      line.push_back(c);
    } else if (!line.empty() && line.back() != ' ') {
      line.push_back(' ');
    }
  }
  if (!line.empty() && line.back() == ' ') {
    line.pop_back();
  }
  return line;
}

ServerError ErrorOf(const PGresult* result) {
  ServerError error;
  error.sqlstate = Field(result, PG_DIAG_SQLSTATE);
  error.context = Field(result, PG_DIAG_CONTEXT);
  error.text = Field(result, PG_DIAG_MESSAGE_PRIMARY);
  if (error.text.empty()) {
    error.text = OneLine(PQresultErrorMessage(result));
  }
  // DETAIL may quote row values (a failing row filter, a constraint), HINT never does.
  if (const std::string detail = Field(result, PG_DIAG_MESSAGE_DETAIL);
      !detail.empty() && error.sqlstate.substr(0, 2) != "22" &&
      error.sqlstate.substr(0, 2) != "23") {
    error.text += absl::StrFormat(" (%s)", detail);
  }
  if (const std::string hint = Field(result, PG_DIAG_MESSAGE_HINT); !hint.empty()) {
    error.text += absl::StrFormat(" (hint: %s)", hint);
  }
  // It may quote a whole value.
  error.text = base::Cut(error.text, base::kMessageBytesMax);
  return error;
}

Result::Result(ResultPtr result) : result_(std::move(result)) {
  const ExecStatusType status = PQresultStatus(result_.get());
  if (status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE) {
    error_ = ErrorOf(result_.get());
  }
}

bool Result::IsNull(int row, int column) const {
  CHECK(row < rows() && column < columns()) << "row " << row << ", column " << column;
  return PQgetisnull(result_.get(), row, column) == 1;
}

std::string_view Result::Text(int row, int column) const {
  CHECK(row < rows() && column < columns()) << "row " << row << ", column " << column;
  return std::string_view(PQgetvalue(result_.get(), row, column),
                          static_cast<std::size_t>(PQgetlength(result_.get(), row, column)));
}

namespace {

std::string Doubled(std::string_view text, char quote) {
  std::string quoted(1, quote);
  for (const char c : text) {
    if (c == quote) {
      quoted.push_back(quote);
    }
    quoted.push_back(c);
  }
  quoted.push_back(quote);
  return quoted;
}

}  // namespace

std::string QuoteIdentifier(std::string_view name) { return Doubled(name, '"'); }

std::string QuoteLiteral(std::string_view text) {
  // Every session of ours has standard_conforming_strings on, and so has the replication
  // grammar: a backslash is an ordinary character.
  return Doubled(text, '\'');
}

std::string ArrayLiteral(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) {
    list += (list.empty() ? "" : ", ") + QuoteLiteral(text);
  }
  return "ARRAY[" + list + "]::text[]";
}

std::string LibpqVersion() {
  return absl::StrFormat("%d.%d", PQlibVersion() / 10000, PQlibVersion() % 10000);
}

namespace {

using base::HaltReason;
using base::StreamEnd;

constexpr int kConnectTimeoutSeconds = 10;

// What decides the bytes of text-mode values; a DBA may have set others for the role. Names and
// operators mean those of pg_catalog: who may create any in another schema must not have them run
// with the rights of this connection. What a policy of row-level security would hide is an error:
// hidden rows must not be taken for none. Every commit must survive a crash: of a dead letter's
// event, only its row is left. A standby takes no serializable transaction. A database that is
// read-only by default must still take that row; a standby rejects it all the same.
constexpr char kSessionOptions[] =
    "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3 -c bytea_output=hex "
    "-c timezone=UTC -c standard_conforming_strings=on -c search_path=pg_catalog,pg_temp "
    "-c synchronous_commit=on -c row_security=off "
    "-c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off "
    "-c default_transaction_read_only=off";

// A time-out that was set for the role or the database is meant for its queries, not for these. One
// in the conninfo is meant.
constexpr char kDefaultOptions[] =
    "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0 ";

// A stream must outlive any time-out, and warnings must arrive.
constexpr char kReplicationOptions[] =
    "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 "
    "-c client_min_messages=warning";

class Parameters {
 public:
  void Add(std::string keyword, std::string value) {
    keywords_.push_back(std::move(keyword));
    values_.push_back(std::move(value));
  }

  PGconn* Connect() const {
    std::vector<const char*> keywords;
    std::vector<const char*> values;
    for (std::size_t i = 0; i < keywords_.size(); ++i) {
      keywords.push_back(keywords_[i].c_str());
      values.push_back(values_[i].c_str());
    }
    keywords.push_back(nullptr);
    values.push_back(nullptr);
    constexpr int kExpandDbname = 1;
    return PQconnectdbParams(keywords.data(), values.data(), kExpandDbname);
  }

 private:
  std::vector<std::string> keywords_;
  std::vector<std::string> values_;
};

Parameters MakeParameters(const ConnectionOptions& options, const ConnectionSettings& settings) {
  Parameters parameters;
  // First, so that what follows overrides it; an empty value would be ignored by libpq.
  parameters.Add("dbname", options.conninfo);
  if (options.replication) {
    parameters.Add("replication", "database");
  }
  parameters.Add("client_encoding", "UTF8");
  parameters.Add("fallback_application_name", options.application_name);
  parameters.Add("options", SessionOptions(Setting(settings, "options"), options.replication));
  const auto add_default = [&](const char* keyword, const char* value) {
    if (Setting(settings, keyword).empty()) {
      parameters.Add(keyword, value);
    }
  };
  parameters.Add("connect_timeout",
                 ConnectTimeout(Setting(settings, "connect_timeout"), options.connect_within));
  // A peer that vanished without a word is noticed within a minute instead of two hours.
  add_default("keepalives_idle", "30");
  add_default("keepalives_interval", "10");
  add_default("keepalives_count", "3");
  add_default("tcp_user_timeout", "60000");
  if (options.server) {
    parameters.Add("host", options.server->host);
    parameters.Add("hostaddr", options.server->hostaddr);
    parameters.Add("port", options.server->port);
  }
  return parameters;
}

// Ours to ignore: what the server says before streaming is looked at in the catalogs. libpq's
// default would print on stderr.
void IgnoreNotice(void* /*context*/, const PGresult* /*notice*/) {}

std::string Text(const char* value) { return value == nullptr ? "" : value; }

Endpoint EndpointOf(PGconn* connection) {
  Endpoint endpoint;
  endpoint.host = absl::StrFormat("%s:%s", Text(PQhost(connection)), Text(PQport(connection)));
  endpoint.database = Text(PQdb(connection));
  endpoint.user = Text(PQuser(connection));
  return endpoint;
}

// libpq quotes what is no number, which may be anything, such as what a file holds.
std::string WithoutValues(std::string message) {
  constexpr std::string_view kBefore = "invalid integer value \"";
  constexpr std::string_view kBehind = "\" for connection option";
  for (std::size_t at = message.find(kBefore); at != std::string::npos;
       at = message.find(kBefore, at)) {
    at += kBefore.size();
    const std::size_t end = message.find(kBehind, at);
    message.replace(at, end == std::string::npos ? end : end - at, "***");
  }
  return message;
}

StreamEnd Rejected(PGconn* connection, std::string_view sqlstate, std::string message) {
  message = WithoutValues(std::move(message));
  if (PQconnectionNeedsPassword(connection) == 1) {
    return ConnectFailure(sqlstate::kInvalidPassword, message, EndpointOf(connection));
  }
  if (message.rfind("could not match", 0) == 0) {  // as many ports as hosts, or one
    return ConnectFailure(sqlstate::kInvalidParameterValue, message, EndpointOf(connection));
  }
  return ConnectFailure(sqlstate, message, EndpointOf(connection));
}

}  // namespace

// An attempt without an end would keep the only helper thread from everything else, and nobody
// would notice. libpq takes 0 and less for "without limit".
std::string ConnectTimeout(const std::string& wanted, std::chrono::seconds within) {
  int seconds = kConnectTimeoutSeconds;
  if (!wanted.empty() && !absl::SimpleAtoi(wanted, &seconds)) {
    return wanted;  // libpq says what is wrong with it
  }
  const int most = static_cast<int>(within.count());
  return std::to_string(seconds <= 0 ? most : std::min(seconds, most));
}

std::string SessionOptions(const std::string& from_user, bool replication) {
  std::string options = kDefaultOptions + from_user;
  if (!from_user.empty()) {
    options += " ";
  }
  options += kSessionOptions;
  if (replication) {
    options += " ";
    options += kReplicationOptions;
  }
  return options;
}

std::variant<Connection, StreamEnd> Connection::Open(const ConnectionOptions& options) {
  const absl::StatusOr<ConnectionSettings> settings = ResolveConninfo(options.conninfo);
  if (!settings.ok()) {
    return OperatorEnd(
        HaltReason::kAuthFailed,
        absl::StrFormat("%s; correct source.conninfo", std::string(settings.status().message())));
  }
  Connection opened(MakeParameters(options, *settings).Connect());
  PGconn* const connection = opened.get();
  if (connection == nullptr) {
    return LostEnd("connecting to PostgreSQL failed: out of memory");
  }
  PQsetNoticeReceiver(connection, &IgnoreNotice, nullptr);
  if (PQstatus(connection) != CONNECTION_OK) {
    const std::string message = PQerrorMessage(connection);
    if (!IsServerMessage(message) || PQconnectionNeedsPassword(connection) == 1) {
      return Rejected(connection, "", message);
    }
    // The server answered with an error, but libpq gives its SQLSTATE only in a verbose message,
    // and verbosity cannot be set before a first attempt. So ask once more.
    PQsetErrorVerbosity(connection, PQERRORS_VERBOSE);
    PQreset(connection);
    PQsetErrorVerbosity(connection, PQERRORS_DEFAULT);
    if (PQstatus(connection) != CONNECTION_OK) {
      return Rejected(connection, SqlstateInVerboseMessage(PQerrorMessage(connection)), message);
    }
  }
  opened.endpoint_ = EndpointOf(connection);
  opened.server_version_ = PQserverVersion(connection);
  const char* encoding = PQparameterStatus(connection, "server_encoding");
  if (encoding != nullptr && std::string_view(encoding) == "SQL_ASCII") {
    // Such a database may hold any bytes; asking for UTF8 would make the walsender fail on them.
    PQsetClientEncoding(connection, "SQL_ASCII");
  }
  return opened;
}

bool Connection::AwaitAnswer(Deadline deadline) {
  while (PQisBusy(get()) == 1) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return false;
    }
    pollfd descriptor{PQsocket(get()), POLLIN, 0};
    const int ready = poll(&descriptor, 1, static_cast<int>(std::min<long>(left.count(), 60'000)));
    if (ready < 0 && errno != EINTR) {
      return false;
    }
    if (ready > 0 && PQconsumeInput(get()) == 0) {
      return false;
    }
  }
  return true;
}

Result Connection::LimitLockWaits(std::chrono::milliseconds limit, Deadline deadline) {
  return Query(absl::StrFormat("SET lock_timeout = %d", limit.count()), deadline);
}

void Connection::AwaitIdle(Deadline deadline) {
  while (AwaitAnswer(deadline) && ResultPtr(PQgetResult(get())) != nullptr) {
  }
}

Result Connection::Query(const std::string& sql, Deadline deadline) {
  if (PQsendQuery(get(), sql.c_str()) == 0) {
    return Result(ServerError{"", OneLine(PQerrorMessage(get())), ""});
  }
  ResultPtr last;
  while (true) {
    if (!AwaitAnswer(deadline)) {
      const bool gone = PQstatus(get()) != CONNECTION_OK;
      return Result(ServerError{
          "", gone ? OneLine(PQerrorMessage(get())) : std::string("no answer in time"), ""});
    }
    ResultPtr result(PQgetResult(get()));
    if (result == nullptr) {
      break;
    }
    last = std::move(result);
    const ExecStatusType status = PQresultStatus(last.get());
    if (status == PGRES_COPY_BOTH || status == PGRES_COPY_OUT || status == PGRES_COPY_IN ||
        PQstatus(get()) != CONNECTION_OK) {
      break;
    }
  }
  if (last == nullptr) {
    return Result(ServerError{"", OneLine(PQerrorMessage(get())), ""});
  }
  return Result(std::move(last));
}

ServerAddress Connection::address() const {
  return {Text(PQhost(get())), Text(PQhostaddr(get())), Text(PQport(get()))};
}

}  // namespace walpost::postgres
