#include "kafka/handles.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "kafka/monotonic_waits.h"

namespace walpost::kafka {
namespace {

// Lives for ever: a destroying thread may outlast main's statics.
struct Pending {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};

Pending* PendingDestroys() {
  static auto* const pending = new Pending;
  return pending;
}

void DestroyInBackground(rd_kafka_t* producer) {
  Pending* pending = PendingDestroys();
  {
    const std::lock_guard<std::mutex> lock(pending->mutex);
    ++pending->count;
  }
  std::thread([pending, producer] {
    rd_kafka_destroy_flags(producer, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    const std::lock_guard<std::mutex> lock(pending->mutex);
    --pending->count;
    pending->changed.notify_all();
  }).detach();
}

}  // namespace

Producer OwnProducer(rd_kafka_t* producer) {
  UseMonotonicWaits();
  return Producer(producer, DestroyInBackground);
}

Topic NewTopic(rd_kafka_t* producer, const std::string& name, void* opaque) {
  // A new topic conf would have librdkafka's defaults, a message.timeout.ms of 5 minutes among them.
  rd_kafka_topic_conf_t* conf = rd_kafka_default_topic_conf_dup(producer);
  rd_kafka_topic_conf_set_opaque(conf, opaque);
  return Topic(rd_kafka_topic_new(producer, name.c_str(), conf));  // frees conf in any case
}

bool WaitForDestroyed(std::chrono::milliseconds timeout) {
  Pending* pending = PendingDestroys();
  std::unique_lock<std::mutex> lock(pending->mutex);
  return pending->changed.wait_for(lock, timeout, [pending] { return pending->count == 0; });
}

}  // namespace walpost::kafka
