#include "postgres/sql_connection.h"

#include <utility>

#include "base/status.h"
#include "postgres/connection.h"

namespace walpost::postgres {

struct SqlConnection::Impl {
  Connection connection;
  std::string last_sqlstate;

  void Cancel() {
    PGcancel* const cancel = PQgetCancel(connection.get());
    char message[256];
    if (cancel != nullptr) {
      PQcancel(cancel, message, sizeof(message));
      PQfreeCancel(cancel);
    }
  }

  absl::Status Fail(const ServerError& error) {
    last_sqlstate = error.sqlstate;
    return SqlStatus("SQL on " + connection.endpoint().ToString(), error);
  }
};

absl::StatusOr<SqlConnection> SqlConnection::Connect(const std::string& conninfo,
                                                     const std::string& application_name,
                                                     const std::optional<ServerAddress>& server) {
  auto opened = Connection::Open(
      ConnectionOptions{conninfo, application_name, /*replication=*/false, server});
  if (const auto* end = std::get_if<base::StreamEnd>(&opened)) {
    return end->status;
  }
  SqlConnection connection(
      std::unique_ptr<Impl>(new Impl{std::move(std::get<Connection>(opened)), std::string()}));
  for (const SessionTimeout& timeout : kSessionTimeouts) {
    if (connection.server_version() >= timeout.since) {
      RETURN_IF_ERROR(connection.Execute(absl::StrFormat("SET %s = 0", timeout.name)));
    }
  }
  return connection;
}

SqlConnection::SqlConnection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SqlConnection::~SqlConnection() = default;
SqlConnection::SqlConnection(SqlConnection&&) noexcept = default;
SqlConnection& SqlConnection::operator=(SqlConnection&&) noexcept = default;

absl::StatusOr<std::vector<Row>> SqlConnection::Query(std::string_view sql,
                                                      const std::vector<Cell>& parameters) {
  impl_->last_sqlstate.clear();
  std::vector<const char*> values;
  values.reserve(parameters.size());
  for (const Cell& parameter : parameters) {
    values.push_back(parameter.has_value() ? parameter->c_str() : nullptr);
  }
  constexpr int kText = 0;
  const Result result(ResultPtr(PQexecParams(impl_->connection.get(), std::string(sql).c_str(),
                                             static_cast<int>(values.size()), nullptr,
                                             values.data(), nullptr, nullptr, kText)));
  if (!result.ok()) {
    return impl_->Fail(result.error());
  }
  std::vector<Row> rows(static_cast<std::size_t>(result.rows()));
  for (int row = 0; row < result.rows(); ++row) {
    Row& cells = rows[static_cast<std::size_t>(row)];
    for (int column = 0; column < result.columns(); ++column) {
      cells.push_back(result.IsNull(row, column) ? Cell()
                                                 : Cell(std::string(result.Text(row, column))));
    }
  }
  return rows;
}

absl::Status SqlConnection::ForEachRow(std::string_view sql,
                                       const std::function<absl::Status(const Row&)>& row) {
  impl_->last_sqlstate.clear();
  PGconn* const connection = impl_->connection.get();
  absl::Status status = absl::OkStatus();
  if (PQsendQuery(connection, std::string(sql).c_str()) == 0 ||
      PQsetSingleRowMode(connection) == 0) {
    return absl::UnavailableError(PQerrorMessage(connection));
  }
  Row cells;
  // To the end also after an error, or the connection could not be used again.
  while (PGresult* next = PQgetResult(connection)) {
    const Result result((ResultPtr(next)));
    if (!status.ok()) {
      continue;
    }
    if (!result.ok()) {
      status = impl_->Fail(result.error());
      continue;
    }
    for (int at = 0; at < result.rows() && status.ok(); ++at) {
      cells.resize(static_cast<std::size_t>(result.columns()));
      for (int column = 0; column < result.columns(); ++column) {
        Cell& cell = cells[static_cast<std::size_t>(column)];
        if (result.IsNull(at, column)) {
          cell.reset();
        } else if (cell) {
          cell->assign(result.Text(at, column));
        } else {
          cell.emplace(result.Text(at, column));
        }
      }
      status = row(cells);
      if (!status.ok()) {
        impl_->Cancel();
      }
    }
  }
  return status;
}

absl::Status SqlConnection::Execute(std::string_view script) {
  impl_->last_sqlstate.clear();
  const Result result(ResultPtr(PQexec(impl_->connection.get(), std::string(script).c_str())));
  return result.ok() ? absl::OkStatus() : impl_->Fail(result.error());
}

absl::Status SqlConnection::BeginTransaction() {
  return Execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'");
}

absl::Status SqlConnection::EndTransaction(const absl::Status& done) {
  if (done.ok()) {
    return Execute("COMMIT");
  }
  const std::string sqlstate = impl_->last_sqlstate;
  (void)Execute("ROLLBACK");  // the first error says why
  impl_->last_sqlstate = sqlstate;
  return done;
}

int SqlConnection::server_version() const { return impl_->connection.server_version(); }

std::string SqlConnection::host() const { return impl_->connection.endpoint().host; }

std::string SqlConnection::database() const { return impl_->connection.endpoint().database; }

const std::string& SqlConnection::last_sqlstate() const { return impl_->last_sqlstate; }

}  // namespace walpost::postgres
