#include "kafka/statistics.h"

#include <gtest/gtest.h>

#include <string>

namespace walpost::kafka {
namespace {

// As librdkafka writes it, shortened: a name bootstrapped with, a role, two brokers out of order.
constexpr char kStatistics[] = R"({ "name": "shop#producer-1", "ts": 1, "txmsgs": 7,
"brokers": {
 "boot:9092/bootstrap": { "name":"boot:9092/bootstrap", "nodeid":-1, "nodename":"boot:9092", "source":"configured",
   "state":"UP", "txerrs": 99, "rtt": {"p99": 5}, "toppars":{} },
 "TxnCoordinator": { "nodeid":-1, "nodename":"", "source":"logical", "state":"INIT", "toppars":{} },
 "k2:9092/2": { "name":"k2:9092/2", "nodeid":2, "nodename":"k2:9092", "source":"learned", "state":"TRY_CONNECT",
   "outbuf_cnt": 3, "waitresp_cnt": 4, "tx": 8, "txerrs": 5, "txretries": 6, "req_timeouts": 7, "rxerrs": 8,
   "disconnects": 9, "rtt": {"min": 1, "max": 2, "avg": 3, "p99": 0}, "throttle": {"max": 0},
   "toppars":{ "orders-0": { "topic":"orders", "partition":0} } },
 "k1:9092/1": { "name":"k1:9092/1", "nodeid":1, "nodename":"k1:9092", "source":"configured", "state":"UP", "outbuf_cnt": -1,
   "int_latency": {"p99": 1}, "rtt": {"min": 1, "p99": 700}, "throttle": {"max": 250, "p99": 3},
   "req": {"Produce": 7, "disconnects": 100}, "toppars":{} }
}, "topics": )";

TEST(StatisticsTest, BrokersOfTheClusterAreReadByAddress) {
  const auto brokers = ReadBrokers(std::string(kStatistics) + "{\"orders\": {}}}");
  ASSERT_EQ(brokers.size(), 2U);
  EXPECT_EQ(brokers[0].address, "k1:9092");
  EXPECT_TRUE(brokers[0].up);
  EXPECT_DOUBLE_EQ(brokers[0].round_trip_p99, 0.0007);
  EXPECT_DOUBLE_EQ(brokers[0].throttle_max, 0.25);
  EXPECT_EQ(brokers[0].queued_requests, 0U) << "below 0 is no count";
  EXPECT_EQ(brokers[0].disconnects, 0U) << "of `req`, another thing of that name";
  EXPECT_EQ(brokers[1].address, "k2:9092");
  EXPECT_FALSE(brokers[1].up);
  EXPECT_EQ(brokers[1].queued_requests, 3U);
  EXPECT_EQ(brokers[1].waiting_requests, 4U);
  EXPECT_EQ(brokers[1].send_errors, 5U);
  EXPECT_EQ(brokers[1].retries, 6U);
  EXPECT_EQ(brokers[1].timeouts, 7U);
  EXPECT_EQ(brokers[1].receive_errors, 8U);
  EXPECT_EQ(brokers[1].disconnects, 9U);
}

// What follows may be megabytes, and the loop waits meanwhile.
TEST(StatisticsTest, NothingBehindTheBrokersIsRead) {
  EXPECT_EQ(ReadBrokers(std::string(kStatistics) + "no JSON at all").size(), 2U);
}

TEST(StatisticsTest, WhatCannotBeReadHasNoBrokers) {
  for (const char* text :
       {"", "{", "[]", "7", "{\"brokers\": 7}", "{\"brokers\": {}}", "{\"brokers\": {\"a\": 1}}"}) {
    EXPECT_TRUE(ReadBrokers(text).empty()) << text;
  }
}

}  // namespace
}  // namespace walpost::kafka
