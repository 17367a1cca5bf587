#include "kafka/handles.h"

#include <gtest/gtest.h>

#include <array>
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

}  // namespace
}  // namespace walpost::kafka
