// Handles - librdkafka's C objects as owners, one line each.
// Thread: as librdkafka says; ProducerHandle may be released on any thread: destroying a producer
//   can block, so a thread of its own does it.
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <memory>
#include <string>

namespace walpost::kafka {

struct ConfDeleter {
  void operator()(rd_kafka_conf_t* conf) const { rd_kafka_conf_destroy(conf); }
};

struct EventDeleter {
  void operator()(rd_kafka_event_t* event) const { rd_kafka_event_destroy(event); }
};

struct QueueDeleter {
  void operator()(rd_kafka_queue_t* queue) const { rd_kafka_queue_destroy(queue); }
};

struct TopicDeleter {
  void operator()(rd_kafka_topic_t* topic) const { rd_kafka_topic_destroy(topic); }
};

struct MessageDeleter {
  void operator()(rd_kafka_message_t* message) const { rd_kafka_message_destroy(message); }
};

struct MetadataDeleter {
  void operator()(const rd_kafka_metadata_t* metadata) const {
    rd_kafka_metadata_destroy(metadata);
  }
};

using Conf = std::unique_ptr<rd_kafka_conf_t, ConfDeleter>;
using Event = std::unique_ptr<rd_kafka_event_t, EventDeleter>;
using Queue = std::unique_ptr<rd_kafka_queue_t, QueueDeleter>;
using Topic = std::unique_ptr<rd_kafka_topic_t, TopicDeleter>;
using Message = std::unique_ptr<rd_kafka_message_t, MessageDeleter>;
using Metadata = std::unique_ptr<const rd_kafka_metadata_t, MetadataDeleter>;

// Shared by the sink and by a metadata look-up that may still run when its session ends.
using Producer = std::shared_ptr<rd_kafka_t>;

// Destroys on a thread that ends with it.
Producer OwnProducer(rd_kafka_t* producer);

// With the producer's topic properties; null for a name that is not legal.
Topic NewTopic(rd_kafka_t* producer, const std::string& name, void* opaque);

// Waits until every producer given up so far is destroyed; false when that took longer.
bool WaitForDestroyed(std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
