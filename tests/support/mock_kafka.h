// MockKafka - librdkafka's mock cluster: brokers inside the test program that speak the protocol
// over TCP and fail on demand.
// Why: failures a real Kafka cannot be asked for, and tests that need no Java.
// Thread: any; the brokers run on a thread of librdkafka's.
// Units/limits: it has no fencing and no size limits of topics.
#pragma once

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <string>
#include <vector>

namespace walpost::testing {

class MockKafka {
 public:
  explicit MockKafka(int brokers = 1);
  ~MockKafka();
  MockKafka(const MockKafka&) = delete;
  MockKafka& operator=(const MockKafka&) = delete;

  std::string bootstrap() const;

  void CreateTopic(const std::string& name, int partitions);
  // What a look-up of the topic answers.
  void FailTopic(const std::string& name, rd_kafka_resp_err_t error);
  // What the next produce requests answer, one each.
  void FailProduce(const std::vector<rd_kafka_resp_err_t>& errors);
  // What the next questions after the ends of partitions answer, one each.
  void FailOffsets(const std::vector<rd_kafka_resp_err_t>& errors);
  // The broker cannot be reached.
  void SetDown(bool down, int broker = 1);
  // Every answer of the broker takes this long.
  void SetDelay(int milliseconds, int broker = 1);

 private:
  void Wake() const;

  rd_kafka_t* client_;
  rd_kafka_mock_cluster_t* cluster_;
};

// What a consumer reads of a partition from its first to its last record, for a real Kafka too.
// CHECK-fails when that takes longer than 30 s. A null value is "(null)".
std::vector<std::string> ReadPartition(const std::string& bootstrap, const std::string& topic,
                                       int partition);

}  // namespace walpost::testing
