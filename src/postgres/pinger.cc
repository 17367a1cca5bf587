#include "postgres/pinger.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "postgres/result.h"

namespace walpost::postgres {
namespace {

constexpr char kPingTimeoutSeconds[] = "2";

class LibpqPinger final : public Pinger {
 public:
  explicit LibpqPinger(const Connection& connection) {
    const ConninfoPtr options(PQconninfo(connection.get()));
    // TLS and the role as before, since a proxy may need them to find the server; of several hosts
    // only the one this connection reached. No password: the answer comes before authentication.
    for (const PQconninfoOption* option = options.get();
         option != nullptr && option->keyword != nullptr; ++option) {
      const std::string keyword = option->keyword;
      if (option->val != nullptr && option->val[0] != '\0' && !Replaced(keyword)) {
        Add(keyword, option->val);
      }
    }
    const ServerAddress server = connection.address();
    Add("host", server.host.c_str());
    Add("hostaddr", server.hostaddr.c_str());
    Add("port", server.port.c_str());
    Add("connect_timeout", kPingTimeoutSeconds);
  }

  base::PingAnswer Ping() override {
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

 private:
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

  std::vector<std::pair<std::string, std::string>> parameters_;
};

}  // namespace

std::unique_ptr<Pinger> MakePinger(const Connection& connection) {
  return std::make_unique<LibpqPinger>(connection);
}

}  // namespace walpost::postgres
