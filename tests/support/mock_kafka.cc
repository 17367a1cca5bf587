#include "support/mock_kafka.h"

#include <glog/logging.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

namespace walpost::testing {
namespace {

constexpr int kPatienceMs = 30'000;
constexpr int16_t kProduceRequest = 0;
constexpr int16_t kListOffsetsRequest = 2;

rd_kafka_t* NewClient(rd_kafka_type_t type,
                      const std::vector<std::array<const char*, 2>>& settings) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  std::array<char, 512> error{};
  for (const auto& [name, value] : settings) {
    CHECK_EQ(rd_kafka_conf_set(conf, name, value, error.data(), error.size()), RD_KAFKA_CONF_OK)
        << error.data();
  }
  rd_kafka_t* client = rd_kafka_new(type, conf, error.data(), error.size());
  CHECK(client != nullptr) << error.data();
  return client;
}

}  // namespace

MockKafka::MockKafka(int brokers)
    : client_(NewClient(RD_KAFKA_PRODUCER, {{"log_level", "0"}})),
      cluster_(rd_kafka_mock_cluster_new(client_, brokers)) {
  CHECK(cluster_ != nullptr);
}

MockKafka::~MockKafka() {
  rd_kafka_mock_cluster_destroy(cluster_);
  rd_kafka_destroy(client_);
}

std::string MockKafka::bootstrap() const { return rd_kafka_mock_cluster_bootstraps(cluster_); }

// The cluster's thread misses a command while it ends the one before, and takes it a second later.
// It never misses a new connection.
void MockKafka::Wake() const {
  const std::string address = bootstrap();
  sockaddr_in broker{};
  broker.sin_family = AF_INET;
  broker.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  broker.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK_GE(connection, 0);
  // One that is down rejects.
  (void)connect(connection, reinterpret_cast<const sockaddr*>(&broker), sizeof(broker));
  close(connection);
}

void MockKafka::CreateTopic(const std::string& name, int partitions) {
  Wake();
  CHECK_EQ(rd_kafka_mock_topic_create(cluster_, name.c_str(), partitions, 1),
           RD_KAFKA_RESP_ERR_NO_ERROR);
}

void MockKafka::FailTopic(const std::string& name, rd_kafka_resp_err_t error) {
  Wake();
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR && error != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
    // As a broker does, it gives no partitions beside an error: librdkafka 2.8 does not survive
    // them.
    (void)rd_kafka_mock_topic_create(cluster_, name.c_str(), 0, 1);
    Wake();
  }
  rd_kafka_mock_topic_set_error(cluster_, name.c_str(), error);
}

void MockKafka::FailProduce(const std::vector<rd_kafka_resp_err_t>& errors) {
  Wake();
  rd_kafka_mock_push_request_errors_array(cluster_, kProduceRequest, errors.size(), errors.data());
}

void MockKafka::FailOffsets(const std::vector<rd_kafka_resp_err_t>& errors) {
  Wake();
  rd_kafka_mock_push_request_errors_array(cluster_, kListOffsetsRequest, errors.size(),
                                          errors.data());
}

void MockKafka::SetDown(bool down, int broker) {
  Wake();
  CHECK_EQ(down ? rd_kafka_mock_broker_set_down(cluster_, broker)
                : rd_kafka_mock_broker_set_up(cluster_, broker),
           RD_KAFKA_RESP_ERR_NO_ERROR);
}

void MockKafka::SetDelay(int milliseconds, int broker) {
  Wake();
  CHECK_EQ(rd_kafka_mock_broker_set_rtt(cluster_, broker, milliseconds),
           RD_KAFKA_RESP_ERR_NO_ERROR);
}

std::vector<std::string> ReadPartition(const std::string& bootstrap, const std::string& topic,
                                       int partition) {
  const std::unique_ptr<rd_kafka_t, void (*)(rd_kafka_t*)> client(
      NewClient(RD_KAFKA_CONSUMER, {{"bootstrap.servers", bootstrap.c_str()},
                                    {"group.id", "reader"},
                                    {"enable.auto.commit", "false"},
                                    {"auto.offset.reset", "earliest"},
                                    {"fetch.wait.max.ms", "10"},
                                    {"log_level", "0"}}),
      [](rd_kafka_t* consumer) {
        rd_kafka_consumer_close(consumer);
        rd_kafka_destroy(consumer);
      });
  std::int64_t low = 0;
  std::int64_t high = 0;
  CHECK_EQ(rd_kafka_query_watermark_offsets(client.get(), topic.c_str(), partition, &low, &high,
                                            kPatienceMs),
           RD_KAFKA_RESP_ERR_NO_ERROR);
  rd_kafka_topic_partition_list_t* assigned = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(assigned, topic.c_str(), partition)->offset =
      RD_KAFKA_OFFSET_BEGINNING;
  rd_kafka_assign(client.get(), assigned);
  rd_kafka_topic_partition_list_destroy(assigned);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  std::vector<std::string> values;
  for (std::int64_t next = low; next < high;) {
    CHECK(std::chrono::steady_clock::now() < deadline)
        << "reading " << topic << "/" << partition << ": at " << next << " of " << high;
    const std::unique_ptr<rd_kafka_message_t, void (*)(rd_kafka_message_t*)> message(
        rd_kafka_consumer_poll(client.get(), 100), rd_kafka_message_destroy);
    if (message != nullptr && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      values.emplace_back(
          message->payload == nullptr
              ? "(null)"
              : std::string(static_cast<const char*>(message->payload), message->len));
      next = message->offset + 1;
    }
  }
  return values;
}

}  // namespace walpost::testing
