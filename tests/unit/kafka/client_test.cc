// What cnd_timedwait is for librdkafka. That a clock which is set back changes nothing is shown by
// tests/integration/clock_test.py.

#include "kafka/client.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <threads.h>

#include <array>
#include <chrono>
#include <future>
#include <string>

namespace walpost::kafka {
namespace {

// Out of reach, and giving up soon.
Producer ImpatientProducer() {
  std::array<char, 512> error{};
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", "127.0.0.1:1", error.data(), error.size());
  rd_kafka_conf_set(conf, "log_level", "0", error.data(), error.size());
  rd_kafka_conf_set(conf, "message.timeout.ms", "10", error.data(), error.size());
  rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
  return OwnProducer(rd_kafka_new(RD_KAFKA_PRODUCER, conf, error.data(), error.size()));
}

// With librdkafka's own properties for topics, events would be given up after 5 minutes.
TEST(NewTopicTest, ProducersTopicPropertiesAreInForce) {
  const Producer producer = ImpatientProducer();
  int mine = 0;
  const Topic topic = NewTopic(producer.get(), "topic", &mine);
  ASSERT_NE(topic, nullptr);
  EXPECT_EQ(rd_kafka_topic_opaque(topic.get()), &mine);
  std::array<char, 1> value{};
  ASSERT_EQ(rd_kafka_produce(topic.get(), 0, 0, value.data(), value.size(), nullptr, 0, nullptr),
            0);
  const Queue queue(rd_kafka_queue_get_main(producer.get()));
  Event event;
  do {  // the broker that is not there comes first
    event.reset(rd_kafka_queue_poll(queue.get(), 30'000));
    ASSERT_NE(event, nullptr) << "still waiting";
  } while (rd_kafka_event_type(event.get()) != RD_KAFKA_EVENT_DR);
  const rd_kafka_message_t* message = rd_kafka_event_message_next(event.get());
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->err, RD_KAFKA_RESP_ERR__MSG_TIMED_OUT);
}

TEST(NewTopicTest, NameThatIsTooLongIsNull) {
  const Producer producer = ImpatientProducer();
  EXPECT_EQ(NewTopic(producer.get(), std::string(600, 'x'), nullptr), nullptr);
}

using std::chrono::milliseconds;
using std::chrono::steady_clock;

timespec In(milliseconds time) {
  timespec end{};
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += time.count() * 1'000'000;
  end.tv_sec += end.tv_nsec / 1'000'000'000;
  end.tv_nsec %= 1'000'000'000;
  return end;
}

class MonotonicWaitsTest : public ::testing::Test {
 protected:
  MonotonicWaitsTest() {
    UseMonotonicWaits();
    EXPECT_EQ(cnd_init(&condition_), thrd_success);
    EXPECT_EQ(mtx_init(&mutex_, mtx_plain), thrd_success);
    EXPECT_EQ(mtx_lock(&mutex_), thrd_success);
  }

  ~MonotonicWaitsTest() override {
    mtx_unlock(&mutex_);
    mtx_destroy(&mutex_);
    cnd_destroy(&condition_);
  }

  cnd_t condition_;
  mtx_t mutex_;
};

TEST_F(MonotonicWaitsTest, LibrariesFindTheProgramsOwn) {
  Dl_info found{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "cnd_timedwait"), &found), 0);
  Dl_info program{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&UseMonotonicWaits), &program), 0);
  EXPECT_EQ(found.dli_fbase, program.dli_fbase);
}

TEST_F(MonotonicWaitsTest, WaitsUntilTheEndAndNoLonger) {
  const auto begin = steady_clock::now();
  const timespec end = In(milliseconds(200));
  int code = thrd_success;
  while (code == thrd_success) {  // a wait may end for no reason
    code = cnd_timedwait(&condition_, &mutex_, &end);
  }
  EXPECT_EQ(code, thrd_timedout);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(190));
}

TEST_F(MonotonicWaitsTest, EndThatHasPassedIsATimeOutAtOnce) {
  const timespec end = In(milliseconds(0));
  EXPECT_EQ(cnd_timedwait(&condition_, &mutex_, &end), thrd_timedout);
}

TEST_F(MonotonicWaitsTest, SignalEndsTheWait) {
  bool notified = false;
  auto notifier = std::async(std::launch::async, [this, &notified] {
    mtx_lock(&mutex_);
    notified = true;
    cnd_signal(&condition_);
    mtx_unlock(&mutex_);
  });
  const timespec end = In(milliseconds(30'000));
  int code = thrd_success;
  while (!notified && code == thrd_success) {
    code = cnd_timedwait(&condition_, &mutex_, &end);
  }
  EXPECT_EQ(code, thrd_success);
}

TEST(BrokersTest, BeforeOneHasAnsweredThereAreOthersToAsk) {
  Brokers brokers;
  EXPECT_FALSE(brokers.all_answered());
  brokers.known = {1, 2};
  brokers.answered = {1};
  EXPECT_FALSE(brokers.all_answered());
  brokers.answered = {1, 2};
  EXPECT_TRUE(brokers.all_answered());
}

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
