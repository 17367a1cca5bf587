#include "postgres/server_watch.h"

#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "postgres/connection.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

absl::StatusOr<base::WallTime> ReadServerClock(SqlConnection* connection) {
  ASSIGN_OR_RETURN(const auto rows, connection->Query(absl::StrCat("SELECT ", kServerClock), {}));
  std::int64_t micros = 0;
  if (!absl::SimpleAtoi(rows.at(0)[0].value_or(""), &micros)) {
    return absl::InternalError("the server's clock is not a number");
  }
  return base::WallTime(std::chrono::microseconds(micros));
}

namespace {

constexpr int kSlotStatisticsSince = 140000;
constexpr int kSyncedSince = 170000;

// Absent where the cell is NULL, or negative.
std::optional<std::uint64_t> Number(const Result& result, int row, int column) {
  const std::string_view text = result.Text(row, column);
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && !text.empty() && stop == text.data() + text.size()
             ? std::optional(number)
             : std::nullopt;
}

base::WallTime Time(const Result& result, int row, int column) {
  return base::WallTime(std::chrono::seconds(Number(result, row, column).value_or(0)));
}

// A standby of 17 keeps a copy of a slot for a failover, with positions of its own.
std::string SlotQuery(const std::string& slot, int version) {
  const bool counted = version >= kSlotStatisticsSince;
  return absl::StrFormat(
      "SELECT c.system_identifier, c.recovery, c.wal, s.slot_name, s.active, s.wal_status, %s, "
      "greatest(pg_wal_lsn_diff(c.wal, s.restart_lsn), 0)::bigint, "
      "greatest(s.safe_wal_size, 0), s.safe_wal_size IS NULL AND s.wal_status <> 'lost', %s "
      "FROM (SELECT system_identifier, pg_is_in_recovery() AS recovery, "
      "CASE WHEN pg_is_in_recovery() "
      "THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) "
      "ELSE pg_current_wal_lsn() END AS wal FROM pg_control_system()) c "
      "LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = %s%s %s",
      InvalidationReasonColumn(version),
      counted ? "t.spill_txns, t.spill_bytes, t.total_bytes" : "NULL, NULL, NULL",
      QuoteLiteral(slot), version >= kSyncedSince ? " AND NOT s.synced" : "",
      counted ? "LEFT JOIN pg_catalog.pg_stat_replication_slots t ON t.slot_name = s.slot_name"
              : "");
}

// Bounds that are no times do not count.
std::string PartitionsQuery(const std::vector<SourceTable>& tables) {
  std::string names;
  for (const SourceTable& table : tables) {
    names += absl::StrFormat("%s(%s, %s)", names.empty() ? "" : ", ", QuoteLiteral(table.schema),
                             QuoteLiteral(table.table));
  }
  return absl::StrFormat(
      "SELECT n.nspname || '.' || p.relname, count(*), "
      "extract(epoch FROM min(b.bound[1]::timestamptz))::bigint, "
      "extract(epoch FROM max(b.bound[1]::timestamptz))::bigint "
      "FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace n ON n.oid = p.relnamespace "
      "JOIN pg_catalog.pg_inherits i ON i.inhparent = p.oid "
      "JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid "
      "CROSS JOIN LATERAL (SELECT regexp_match(pg_get_expr(c.relpartbound, c.oid), "
      "'TO \\(''([0-9]{4}-[0-9]{2}-[0-9]{2}[^'']*)''\\)') AS bound) b "
      "WHERE p.relkind = 'p' AND (n.nspname, p.relname) IN (%s) GROUP BY 1 ORDER BY 1",
      names);
}

std::optional<base::SlotFigures> SlotOf(const Result& result) {
  if (result.IsNull(0, 3)) {
    return std::nullopt;
  }
  base::SlotFigures slot;
  slot.active = result.True(0, 4);
  slot.wal_status = std::string(result.Text(0, 5));
  slot.invalidation_reason = std::string(result.Text(0, 6));
  slot.retained_bytes = Number(result, 0, 7).value_or(0);
  if (!result.True(0, 9)) {
    slot.safe_wal_bytes = Number(result, 0, 8).value_or(0);  // a lost one has none
  }
  slot.spilled_transactions = Number(result, 0, 10);
  slot.spilled_bytes = Number(result, 0, 11);
  slot.decoded_bytes = Number(result, 0, 12);
  return slot;
}

std::uint64_t SystemIdentifier(std::string_view text) {
  std::int64_t number = 0;  // as SQL has it
  std::from_chars(text.data(), text.data() + text.size(), number);
  return static_cast<std::uint64_t>(number);
}

}  // namespace

struct ServerWatch::Impl {
  explicit Impl(ServerWatchOptions with) : options(std::move(with)) {}

  absl::Status Connect() {
    auto opened = Connection::Open(
        ConnectionOptions{options.conninfo, options.application_name, /*replication=*/false});
    if (const auto* end = std::get_if<base::StreamEnd>(&opened)) {
      return end->status;
    }
    connection.emplace(std::move(std::get<Connection>(opened)));
    // So that a statement we no longer wait for ends there, too.
    return Ask(absl::StrFormat("SET statement_timeout = %d", options.statement_timeout.count()))
        .status();
  }

  absl::StatusOr<Result> Ask(const std::string& sql) {
    Result result =
        connection->Query(sql, std::chrono::steady_clock::now() + options.statement_timeout);
    if (!result.ok()) {
      return SqlStatus("asking " + connection->endpoint().ToString(), result.error());
    }
    return result;
  }

  absl::StatusOr<base::ServerFigures> Look() {
    RETURN_IF_ERROR(Connect());
    ASSIGN_OR_RETURN(const Result slot, Ask(SlotQuery(options.slot, connection->server_version())));
    base::ServerFigures figures;
    figures.system_identifier = SystemIdentifier(slot.Text(0, 0));
    figures.in_recovery = slot.True(0, 1);
    figures.wal_lsn = base::Lsn::Parse(slot.Text(0, 2)).value_or(base::Lsn());
    figures.slot = SlotOf(slot);
    if (options.tables.empty()) {
      return figures;
    }
    ASSIGN_OR_RETURN(const Result tables, Ask(PartitionsQuery(options.tables)));
    for (int row = 0; row < tables.rows(); ++row) {
      figures.partitions.push_back({std::string(tables.Text(row, 0)),
                                    Number(tables, row, 1).value_or(0), Time(tables, row, 2),
                                    Time(tables, row, 3)});
    }
    return figures;
  }

  const ServerWatchOptions options;
  std::optional<Connection> connection;
};

ServerWatch::ServerWatch(ServerWatchOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

ServerWatch::~ServerWatch() = default;

absl::StatusOr<base::ServerFigures> ServerWatch::Look() {
  absl::StatusOr<base::ServerFigures> figures = impl_->Look();
  impl_->connection.reset();
  return figures;
}

namespace {

constexpr std::chrono::milliseconds kAnswerEvery{300};
constexpr std::chrono::milliseconds kPingEvery{2'000};

// A standby status update without any position: those of 0 change nothing.
std::string NeutralStatus() {
  constexpr std::size_t kPositionsTimeAndFlagBytes = 4 * sizeof(std::int64_t) + 1;
  return "r" + std::string(kPositionsTimeAndFlagBytes, '\0');
}

}  // namespace

KeepAlive::KeepAlive(ReplicationStream* stream, Pinger* pinger)
    : stream_(stream),
      pinger_(pinger),
      answers_([this] { Answer(); }),
      watch_([this] { WatchServer(); }) {}

KeepAlive::~KeepAlive() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_watch_ = true;
  }
  changed_.notify_all();
  watch_.join();  // a ping may take longer than the server waits for an answer
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_answers_ = true;
  }
  changed_.notify_all();
  answers_.join();
}

void KeepAlive::Answer() {
  const std::string status = NeutralStatus();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kAnswerEvery, [this] { return stopping_answers_; })) {
    if (!stream_->Send(status).ok()) {
      return;
    }
  }
}

void KeepAlive::WatchServer() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kPingEvery, [this] { return stopping_watch_; })) {
    lock.unlock();
    const base::PingAnswer answer = pinger_->Ping(base::PingQuestion::kServes);
    lock.lock();
    if (answer == base::PingAnswer::kStopping) {
      shutdown(stream_->socket(), SHUT_RDWR);
      return;
    }
  }
}

namespace {

constexpr std::chrono::seconds kPingWithin{2};  // the least that libpq takes
constexpr std::chrono::seconds kLoginWithin{10};

class LibpqPinger final : public Pinger {
 public:
  LibpqPinger(const Connection& connection, const ConnectOptions& options)
      : options_(options),
        server_(connection.address()),
        walsender_pid_(PQbackendPID(connection.get())) {
    const ConninfoPtr used(PQconninfo(connection.get()));
    // TLS and the role as before, since a proxy may need them to find the server; of several hosts
    // only the one this connection reached. No password: the answer comes before authentication.
    for (const PQconninfoOption* option = used.get();
         option != nullptr && option->keyword != nullptr; ++option) {
      const std::string keyword = option->keyword;
      if (option->val != nullptr && option->val[0] != '\0' && !Replaced(keyword)) {
        Add(keyword, option->val);
      }
    }
    Add("host", server_.host.c_str());
    Add("hostaddr", server_.hostaddr.c_str());
    Add("port", server_.port.c_str());
    Add("connect_timeout", std::to_string(kPingWithin.count()).c_str());
  }

  base::PingAnswer Ping(base::PingQuestion question) override {
    return question == base::PingQuestion::kSlot ? AskAboutSlot() : AskWhetherItServes();
  }

 private:
  base::PingAnswer AskAboutSlot() const {
    auto opened = OpenBeside(options_, server_, kLoginWithin);
    if (const auto* const end = std::get_if<StreamEnd>(&opened)) {
      const base::PingAnswer serves = AskWhetherItServes();
      // Without an answer of the server it is unknown who reads, even if it answers a moment later.
      return serves != base::PingAnswer::kServes ? serves : NotAsked(end->sqlstate);
    }
    const Result slot = std::get<Connection>(opened).Query(
        "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = " +
            QuoteLiteral(options_.slot),
        std::chrono::steady_clock::now() + options_.statement_timeout);
    if (!slot.ok()) {
      return NotAsked(slot.error().sqlstate);
    }
    return slot.rows() == 1 && slot.Text(0, 0) == std::to_string(walsender_pid_)
               ? base::PingAnswer::kOurs
               : base::PingAnswer::kNotOurs;
  }

  // The server answered with an error, or did not answer.
  static base::PingAnswer NotAsked(const std::string& sqlstate) {
    return sqlstate.empty() ? base::PingAnswer::kNone : base::PingAnswer::kNotSaid;
  }

  base::PingAnswer AskWhetherItServes() const {
    std::vector<const char*> keywords;
    std::vector<const char*> values;
    for (const auto& [keyword, value] : parameters_) {
      keywords.push_back(keyword.c_str());
      values.push_back(value.c_str());
    }
    keywords.push_back(nullptr);
    values.push_back(nullptr);
    switch (PQpingParams(keywords.data(), values.data(), 0)) {
      case PQPING_REJECT:
        return base::PingAnswer::kStopping;
      case PQPING_NO_RESPONSE:
        return base::PingAnswer::kNone;
      default:
        return base::PingAnswer::kServes;
    }
  }

  static bool Replaced(const std::string& keyword) {
    for (const char* replaced : {"host", "hostaddr", "port", "connect_timeout", "options",
                                 "replication", "password", "target_session_attrs", "service"}) {
      if (keyword == replaced) {
        return true;
      }
    }
    return false;
  }

  void Add(const std::string& keyword, const char* value) {
    if (value != nullptr && value[0] != '\0') {
      parameters_.emplace_back(keyword, value);
    }
  }

  const ConnectOptions options_;
  const ServerAddress server_;
  const int walsender_pid_;
  std::vector<std::pair<std::string, std::string>> parameters_;
};

}  // namespace

std::variant<Connection, StreamEnd> OpenBeside(const ConnectOptions& options,
                                               const ServerAddress& server,
                                               std::chrono::seconds within) {
  ConnectionOptions wanted{options.conninfo, options.application_name, /*replication=*/true, server,
                           within};
  auto opened = Connection::Open(wanted);
  const auto* const rejected = std::get_if<StreamEnd>(&opened);
  // By the server, for max_wal_senders perhaps. Who has not answered would not answer the second
  // one.
  if (rejected != nullptr && !rejected->sqlstate.empty()) {
    wanted.replication = false;
    opened = Connection::Open(wanted);
  }
  return opened;
}

std::unique_ptr<Pinger> MakePinger(const Connection& connection, const ConnectOptions& options) {
  return std::make_unique<LibpqPinger>(connection, options);
}

}  // namespace walpost::postgres
