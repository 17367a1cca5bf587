#include "kafka/topics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/client.h"
#include "kafka/handles.h"

namespace walpost::kafka {
namespace {

constexpr int kReplicas = 3;
constexpr int kLookAgainAfterMs = 20;

struct NewTopicDeleter {
  void operator()(rd_kafka_NewTopic_t* topic) const { rd_kafka_NewTopic_destroy(topic); }
};

struct AdminOptionsDeleter {
  void operator()(rd_kafka_AdminOptions_t* options) const {
    rd_kafka_AdminOptions_destroy(options);
  }
};

// Of all topics: asked for by name, a missing one would be created by a broker with
// auto.create.topics.enable, as it likes.
absl::StatusOr<Metadata> Look(rd_kafka_t* client, std::chrono::milliseconds timeout) {
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t error =
      rd_kafka_metadata(client, 1, nullptr, &raw, static_cast<int>(timeout.count()));
  Metadata metadata(raw);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError(
        absl::StrFormat("Kafka does not answer: %s: check bootstrap.servers and the network",
                        rd_kafka_err2str(error)));
  }
  return metadata;
}

// Null when there is none that this user may see.
const rd_kafka_metadata_topic_t* Find(const Metadata& metadata, const std::string& topic) {
  const std::span topics(metadata->topics, static_cast<std::size_t>(metadata->topic_cnt));
  const auto found =
      std::find_if(topics.begin(), topics.end(),
                   [&](const rd_kafka_metadata_topic_t& each) { return each.topic == topic; });
  return found == topics.end() ? nullptr : &*found;
}

absl::Status Create(rd_kafka_t* client, const TopicSpec& spec, int replicas,
                    std::chrono::milliseconds timeout) {
  std::array<char, 512> text{};
  const std::unique_ptr<rd_kafka_NewTopic_t, NewTopicDeleter> topic(rd_kafka_NewTopic_new(
      spec.name.c_str(), spec.partitions, replicas, text.data(), text.size()));
  if (topic == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat("topic '%s': %s", spec.name, text.data()));
  }
  for (const auto& [name, value] : spec.config) {
    rd_kafka_NewTopic_set_config(topic.get(), name.c_str(), value.c_str());
  }
  const std::unique_ptr<rd_kafka_AdminOptions_t, AdminOptionsDeleter> admin(
      rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_CREATETOPICS));
  const int wait_ms = static_cast<int>(timeout.count());
  rd_kafka_AdminOptions_set_request_timeout(admin.get(), wait_ms, text.data(), text.size());
  rd_kafka_AdminOptions_set_operation_timeout(admin.get(), wait_ms, text.data(), text.size());
  const Queue queue(rd_kafka_queue_new(client));
  rd_kafka_NewTopic_t* topics[] = {topic.get()};
  rd_kafka_CreateTopics(client, topics, 1, admin.get(), queue.get());
  const Event event(rd_kafka_queue_poll(queue.get(), wait_ms + 1'000));
  if (event == nullptr || rd_kafka_event_error(event.get()) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError(absl::StrFormat(
        "creating topic '%s': %s", spec.name,
        event == nullptr ? "no answer from Kafka" : rd_kafka_event_error_string(event.get())));
  }
  std::size_t count = 0;
  const rd_kafka_topic_result_t** results =
      rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event.get()), &count);
  if (count != 1) {
    return absl::InternalError(absl::StrFormat("creating topic '%s': no result", spec.name));
  }
  const rd_kafka_resp_err_t error = rd_kafka_topic_result_error(results[0]);
  if (error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) {
    return absl::OkStatus();  // somebody was quicker
  }
  return base::Annotate(TopicStatus(spec.name, error),
                        absl::StrFormat("creating it (%d partition, replication factor %d)",
                                        spec.partitions, replicas));
}

// Created is not yet seen: brokers learn of it from the controller, on a busy machine after seconds.
// Who may create it but not see it goes on after the time-out.
void WaitUntilSeen(rd_kafka_t* client, const std::string& topic,
                   std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    const absl::StatusOr<Metadata> metadata = Look(client, timeout);
    const rd_kafka_metadata_topic_t* found = metadata.ok() ? Find(*metadata, topic) : nullptr;
    if (found != nullptr && found->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      return;
    }
    rd_kafka_poll(client, kLookAgainAfterMs);
  }
}

}  // namespace

absl::StatusOr<Ensured> EnsureTopic(const KafkaOptions& options, const TopicSpec& spec,
                                    std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const Producer client, MakeClient(options, RD_KAFKA_PRODUCER));
  ASSIGN_OR_RETURN(const Metadata metadata, Look(client.get(), timeout));
  if (const rd_kafka_metadata_topic_t* found = Find(metadata, spec.name)) {
    RETURN_IF_ERROR(TopicStatus(spec.name, found->err));
    if (found->partition_cnt != spec.partitions) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "topic '%s' has %d partitions and must have %d: delete it when nothing of worth is in "
          "it, or name another one",
          spec.name, found->partition_cnt, spec.partitions));
    }
    return Ensured::kExists;
  }
  RETURN_IF_ERROR(
      Create(client.get(), spec, std::clamp(metadata->broker_cnt, 1, kReplicas), timeout));
  WaitUntilSeen(client.get(), spec.name, timeout);
  return Ensured::kCreated;
}

TopicSpec ProgressTopic(const std::string& name) {
  // A record a second would be a long read at the next start: small segments are compacted soon.
  // librdkafka unpacks a batch whole, a thousand times its size if need be. A broker that has to unpack
  // it first holds the result against the limit.
  return TopicSpec{name,
                   1,
                   {{"cleanup.policy", "compact"},
                    {"segment.ms", "3600000"},
                    {"compression.type", "uncompressed"},
                    {"max.message.bytes", "1048588"},
                    {"min.cleanable.dirty.ratio", "0.1"}}};
}

TopicSpec DeadLetterTopic(const std::string& name) {
  return TopicSpec{name,
                   1,
                   {{"cleanup.policy", "delete"},
                    {"retention.ms", "-1"},
                    {"retention.bytes", "-1"},
                    {"max.message.bytes", "67108864"}}};
}

}  // namespace walpost::kafka
