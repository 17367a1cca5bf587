// A librdkafka plugin whose producers do not end while they are held, for at most 20 s: a stand-in for a name server
// or broker that keeps rd_kafka_destroy waiting.
#include <librdkafka/rdkafka.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace {

std::mutex mutex;
std::condition_variable changed;
bool held = false;
int waiting = 0;

rd_kafka_resp_err_t OnDestroy(rd_kafka_t* /*producer*/, void* /*opaque*/) {
  std::unique_lock<std::mutex> lock(mutex);
  ++waiting;
  changed.wait_for(lock, std::chrono::seconds(20), [] { return !held; });
  --waiting;
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_resp_err_t OnNew(rd_kafka_t* producer, const rd_kafka_conf_t* /*conf*/, void* /*opaque*/,
                          char* /*error*/, size_t /*error_size*/) {
  return rd_kafka_interceptor_add_on_destroy(producer, "slow_destroy", OnDestroy, nullptr);
}

}  // namespace

extern "C" {

rd_kafka_resp_err_t conf_init(rd_kafka_conf_t* conf, void** /*opaque*/, char* /*error*/,
                              size_t /*error_size*/) {
  return rd_kafka_conf_interceptor_add_on_new(conf, "slow_destroy", OnNew, nullptr);
}

void HoldDestroys(bool hold) {
  const std::lock_guard<std::mutex> lock(mutex);
  held = hold;
  changed.notify_all();
}

int WaitingDestroys() {
  const std::lock_guard<std::mutex> lock(mutex);
  return waiting;
}
}
