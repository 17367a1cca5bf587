#include "kafka/statistics.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace walpost::kafka {
namespace {

using base::BrokerFigures;
using Json = nlohmann::json;

constexpr double kMicroseconds = 1e-6;
constexpr double kMilliseconds = 1e-3;

// {"brokers": {"host:9092/1": {"nodeid": 1, "rtt": {"p99": 700}}}, "topics": ...}
class BrokerReader final : public nlohmann::json_sax<Json> {
 public:
  std::vector<BrokerFigures> Take() { return std::move(brokers_); }

  bool null() override { return true; }

  bool boolean(bool /*value*/) override { return true; }

  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value));
  }

  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return Number(value);
  }

  bool string(string_t& value) override {
    if (OfBroker() && key_ == "nodename") {
      broker_.address = value;
    } else if (OfBroker() && key_ == "state") {
      broker_.up = value == "UP";
    }
    return true;
  }

  bool binary(binary_t& /*value*/) override { return true; }

  bool start_object(std::size_t /*elements*/) override {
    path_.push_back(key_);
    if (OfBroker()) {
      broker_ = BrokerFigures();
      node_ = -1;
    }
    return true;
  }

  bool key(string_t& name) override {
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (OfBroker() && node_ >= 0) {
      brokers_.push_back(broker_);
    }
    const bool last = path_.size() == 2 && path_[1] == "brokers";
    path_.pop_back();
    return !last;
  }

  bool start_array(std::size_t /*elements*/) override { return true; }

  bool end_array() override { return true; }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  bool OfBroker() const { return path_.size() == 3 && path_[1] == "brokers"; }

  bool Number(double value) {
    if (path_.size() == 4 && path_[1] == "brokers") {
      if (path_[3] == "rtt" && key_ == "p99") {
        broker_.round_trip_p99 = value * kMicroseconds;
      } else if (path_[3] == "throttle" && key_ == "max") {
        broker_.throttle_max = value * kMilliseconds;
      }
    } else if (OfBroker() && key_ == "nodeid") {
      node_ = value;
    } else if (OfBroker()) {
      Count(static_cast<std::uint64_t>(std::max(value, 0.0)));
    }
    return true;
  }

  void Count(std::uint64_t value) {
    const std::pair<const char*, std::uint64_t*> counts[] = {
        {"outbuf_cnt", &broker_.queued_requests}, {"waitresp_cnt", &broker_.waiting_requests},
        {"txerrs", &broker_.send_errors},         {"rxerrs", &broker_.receive_errors},
        {"txretries", &broker_.retries},          {"req_timeouts", &broker_.timeouts},
        {"disconnects", &broker_.disconnects}};
    for (const auto& [name, count] : counts) {
      if (key_ == name) {
        *count = value;
      }
    }
  }

  std::vector<std::string> path_;  // the first is the document's own
  std::string key_;
  BrokerFigures broker_;
  double node_ = -1;  // of the cluster; -1 = a name that was only bootstrapped with, or a role
  std::vector<BrokerFigures> brokers_;
};

}  // namespace

std::vector<BrokerFigures> ReadBrokers(std::string_view statistics) {
  BrokerReader reader;
  Json::sax_parse(statistics.begin(), statistics.end(), &reader);
  std::vector<BrokerFigures> brokers = reader.Take();
  std::sort(brokers.begin(), brokers.end(),
            [](const BrokerFigures& a, const BrokerFigures& b) { return a.address < b.address; });
  return brokers;
}

}  // namespace walpost::kafka
