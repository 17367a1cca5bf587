#include "kafka/client.h"

#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/classify.h"
#include "kafka/properties.h"

namespace walpost::kafka {

absl::StatusOr<Producer> MakeClient(const KafkaOptions& options, rd_kafka_type_t type,
                                    const ProducerLimits& limits) {
  ASSIGN_OR_RETURN(Conf conf, BuildConf(options, delivery::Sink::Mode::kCareful, limits));
  std::array<char, 512> error{};
  if (type == RD_KAFKA_CONSUMER) {
    for (const auto& [name, value] :
         {std::pair("isolation.level", "read_uncommitted"),
          std::pair("enable.partition.eof", "true"), std::pair("auto.offset.reset", "earliest"),
          std::pair("fetch.wait.max.ms", "50"), std::pair("fetch.error.backoff.ms", "100"),
          // A broker gives one batch however large it is; this only is librdkafka's bound for it.
          std::pair("receive.message.max.bytes", "2147483647"),
          // What is read ahead.
          std::pair("queued.max.messages.kbytes", "4096")}) {
      if (rd_kafka_conf_set(conf.get(), name, value, error.data(), error.size()) !=
          RD_KAFKA_CONF_OK) {
        return absl::InternalError(absl::StrFormat("%s: %s", name, error.data()));
      }
    }
  }
  rd_kafka_t* client = rd_kafka_new(type, conf.get(), error.data(), error.size());
  if (client == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat("sink.kafka.properties: %s", error.data()));
  }
  (void)conf.release();  // rd_kafka_new took it
  return OwnProducer(client);
}

absl::Status TopicStatus(const std::string& topic, rd_kafka_resp_err_t error) {
  const std::string text = absl::StrFormat("topic '%s': %s (%s)", topic, rd_kafka_err2str(error),
                                           rd_kafka_err2name(error));
  switch (Classify(error)) {
    case delivery::FailureKind::kNone:
      return absl::OkStatus();
    case delivery::FailureKind::kTopicUnknown:
      return absl::NotFoundError(text);
    case delivery::FailureKind::kTopicNotAuthorized:
      return absl::PermissionDeniedError(text);
    case delivery::FailureKind::kTopicInvalid:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::StatusOr<std::int32_t> CountPartitions(rd_kafka_t* client, const std::string& topic,
                                             std::chrono::milliseconds timeout) {
  const Topic handle(rd_kafka_topic_new(client, topic.c_str(), nullptr));
  if (handle == nullptr) {
    return TopicStatus(topic, rd_kafka_last_error());
  }
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t error =
      rd_kafka_metadata(client, 0, handle.get(), &raw, static_cast<int>(timeout.count()));
  const Metadata metadata(raw);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError(
        absl::StrFormat("Kafka does not answer a question about topic "
                        "'%s': %s: check bootstrap.servers and the "
                        "network",
                        topic, rd_kafka_err2str(error)));
  }
  if (metadata->topic_cnt != 1) {
    return TopicStatus(topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  }
  RETURN_IF_ERROR(TopicStatus(topic, metadata->topics[0].err));
  return metadata->topics[0].partition_cnt;
}

rd_kafka_headers_t* MakeHeaders(std::span<const envelope::RecordHeader> headers) {
  rd_kafka_headers_t* list = rd_kafka_headers_new(headers.size());
  for (const envelope::RecordHeader& header : headers) {
    rd_kafka_header_add(list, header.name.data(), static_cast<ssize_t>(header.name.size()),
                        header.value.data(), static_cast<ssize_t>(header.value.size()));
  }
  return list;
}

}  // namespace walpost::kafka
