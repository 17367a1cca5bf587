// BrokerFigures - what librdkafka counts of one broker's connection.
// Why here: kafka fills it in, observe shows it; neither may use the other.
// Thread: a value.   Units: seconds. Counters begin at 0 with each producer.
#pragma once

#include <cstdint>
#include <string>

namespace walpost::base {

struct BrokerFigures {
  std::string address;  // host:port
  bool up = false;
  std::uint64_t queued_requests = 0;   // not sent yet
  std::uint64_t waiting_requests = 0;  // sent, not answered
  double round_trip_p99 = 0;           // of the last interval; 0 = no request in it
  double throttle_max = 0;             // of the last interval: the broker's quotas
  std::uint64_t send_errors = 0;
  std::uint64_t receive_errors = 0;
  std::uint64_t retries = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t disconnects = 0;
};

}  // namespace walpost::base
