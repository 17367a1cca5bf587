#include "kafka/cluster_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/client.h"
#include "kafka/handles.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {
namespace {

// Also the settings, where they may be read.
void ReadSettings(rd_kafka_t* client, std::chrono::milliseconds timeout, TopicCheck* check) {
  const absl::StatusOr<TopicLimits> limits = ReadTopicLimits(client, check->topic, timeout);
  if (!limits.ok()) {
    check->settings_error = std::string(limits.status().message());
    return;
  }
  check->settings = TopicSettings{limits->message_bytes_max, limits->min_insync_replicas,
                                  limits->retention,         limits->compacts,
                                  limits->deletes,           limits->uncompressed};
}

TopicCheck CheckTopic(rd_kafka_t* client, const std::string& name,
                      std::chrono::milliseconds timeout) {
  TopicCheck check;
  check.topic = name;
  const Topic topic(rd_kafka_topic_new(client, name.c_str(), nullptr));
  if (topic == nullptr) {
    check.error = rd_kafka_err2str(rd_kafka_last_error());
    return check;
  }
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t error =
      rd_kafka_metadata(client, 0, topic.get(), &raw, static_cast<int>(timeout.count()));
  const Metadata metadata(raw);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    check.error = rd_kafka_err2str(error);
    return check;
  }
  const rd_kafka_metadata_topic_t& found = metadata->topics[0];
  if (found.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    check.error = rd_kafka_err2str(found.err);
    return check;
  }
  check.partitions = found.partition_cnt;
  for (int i = 0; i < found.partition_cnt; ++i) {
    check.replication_factor =
        i == 0 ? found.partitions[i].replica_cnt
               : std::min(check.replication_factor, found.partitions[i].replica_cnt);
  }
  ReadSettings(client, timeout, &check);
  return check;
}

}  // namespace

absl::StatusOr<ClusterCheck> CheckCluster(const KafkaOptions& options,
                                          const std::vector<std::string>& topics,
                                          std::chrono::milliseconds timeout) {
  // A producer's question would make a broker with auto.create.topics.enable create the topic.
  ASSIGN_OR_RETURN(const Producer client, MakeClient(options, RD_KAFKA_CONSUMER));
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t result =
      rd_kafka_metadata(client.get(), 0, nullptr, &raw, static_cast<int>(timeout.count()));
  const Metadata metadata(raw);
  if (result != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError(
        absl::StrFormat("Kafka does not answer: %s: check bootstrap.servers and the network",
                        rd_kafka_err2str(result)));
  }
  ClusterCheck check;
  for (int i = 0; i < metadata->broker_cnt; ++i) {
    check.brokers.push_back(
        absl::StrFormat("%s:%d", metadata->brokers[i].host, metadata->brokers[i].port));
    if (const auto bytes = ReadRequestBytesMax(client.get(), metadata->brokers[i].id, timeout);
        bytes.ok()) {
      check.request_bytes_max = std::min(check.request_bytes_max.value_or(*bytes), *bytes);
    }
  }
  for (const std::string& topic : topics) {
    check.topics.push_back(CheckTopic(client.get(), topic, timeout));
  }
  return check;
}

}  // namespace walpost::kafka
