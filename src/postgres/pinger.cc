#include "postgres/pinger.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "postgres/result.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
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
  // By the server, for max_wal_senders perhaps. Who has not answered would not answer the second one.
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
