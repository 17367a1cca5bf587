#include "kafka/topics.h"

#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/client.h"
#include "kafka/held_rejections.h"
#include "kafka/topic_leaders.h"
#include "kafka/topic_limits.h"
#include "kafka/topic_look_up.h"

namespace walpost::kafka {

using std::chrono::milliseconds;

absl::StatusOr<TopicLimits> ReadTopicPolicy(rd_kafka_t* client, const std::string& topic,
                                            milliseconds timeout) {
  absl::StatusOr<TopicLimits> limits = ReadTopicLimits(client, topic, timeout);
  for (int asked = 1; asked < kPolicyAsks && !limits.ok(); ++asked) {
    if (absl::IsPermissionDenied(limits.status())) {
      break;
    }
    limits = ReadTopicLimits(client, topic, timeout);
  }
  if (limits.ok() && !limits->has_cleanup_policy) {
    return absl::FailedPreconditionError("the answer has no cleanup.policy");
  }
  return limits;
}

absl::Status CheckCompactionIsKnown(const KafkaOptions& options,
                                    const std::set<std::string>& topics, milliseconds timeout) {
  if (topics.empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Producer client, MakeClient(options, RD_KAFKA_PRODUCER));
  for (const std::string& topic : topics) {
    const auto limits = ReadTopicPolicy(client.get(), topic, timeout);
    if (!limits.ok()) {
      return absl::FailedPreconditionError(
          UnknownCompactionText(topic, std::string(limits.status().message())));
    }
  }
  return absl::OkStatus();
}

std::string UnknownCompactionText(const std::string& topic, const std::string& why) {
  return absl::StrFormat(
      "topic '%s': its configuration cannot be read (%s), so it is not known whether compaction "
      "has removed what is not there: walpost's Kafka user needs DESCRIBE_CONFIGS on the topic",
      topic, why);
}

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
    return absl::AlreadyExistsError(spec.name);
  }
  return base::Annotate(TopicStatus(spec.name, error),
                        absl::StrFormat("creating it (%d partition, replication factor %d)",
                                        spec.partitions, replicas));
}

// Created is not yet seen: brokers learn of it from the controller, on a busy machine after
// seconds. Who may create it but not see it goes on after the time-out.
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

absl::Status CheckPartitions(const TopicSpec& spec, std::int32_t partitions) {
  return partitions == spec.partitions
             ? absl::OkStatus()
             : absl::FailedPreconditionError(absl::StrFormat(
                   "topic '%s' has %d partitions and must have %d: delete it when nothing of worth "
                   "is in it, or name another one",
                   spec.name, partitions, spec.partitions));
}

}  // namespace

absl::StatusOr<Ensured> EnsureTopic(const KafkaOptions& options, const TopicSpec& spec,
                                    std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const Producer client, MakeClient(options, RD_KAFKA_PRODUCER));
  ASSIGN_OR_RETURN(const Metadata metadata, Look(client.get(), timeout));
  if (const rd_kafka_metadata_topic_t* found = Find(metadata, spec.name)) {
    RETURN_IF_ERROR(TopicStatus(spec.name, found->err));
    RETURN_IF_ERROR(CheckPartitions(spec, found->partition_cnt));
    return Ensured::kExists;
  }
  const absl::Status created =
      Create(client.get(), spec, std::clamp(metadata->broker_cnt, 1, kReplicas), timeout);
  if (absl::IsAlreadyExists(created)) {  // the broker had not heard of it, or somebody was quicker
    ASSIGN_OR_RETURN(const Producer other, MakeClient(options, RD_KAFKA_PRODUCER));
    const auto partitions = CountPartitions(options, other.get(), spec.name, timeout);
    if (!absl::IsPermissionDenied(partitions.status())) {  // who may create it may not see it
      RETURN_IF_ERROR(partitions.status());
      RETURN_IF_ERROR(CheckPartitions(spec, *partitions));
    }
    return Ensured::kExists;
  }
  RETURN_IF_ERROR(created);
  WaitUntilSeen(client.get(), spec.name, timeout);
  return Ensured::kCreated;
}

TopicSpec ProgressTopic(const std::string& name) {
  // A record a second would be a long read at the next start: small segments are compacted soon.
  // librdkafka unpacks a batch whole, a thousand times its size if need be. A broker that has to
  // unpack it first holds the result against the limit.
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

namespace {

using std::chrono::steady_clock;

// A right is one for the whole topic.
constexpr std::int32_t kAnyPartition = 0;

// Consumers that have been started; stop with its end, before the client.
struct Started {
  Producer client;
  std::vector<Topic> topics;

  Started() = default;
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  ~Started() {
    for (const Topic& topic : topics) {
      rd_kafka_consume_stop(topic.get(), kAnyPartition);
    }
  }
};

}  // namespace

absl::StatusOr<std::vector<std::string>> TopicsNotToRead(const KafkaOptions& options,
                                                         const std::vector<std::string>& topics,
                                                         milliseconds timeout) {
  Started started;
  ASSIGN_OR_RETURN(started.client, MakeClient(options, RD_KAFKA_CONSUMER));
  const Queue queue(rd_kafka_queue_new(started.client.get()));
  std::set<std::string> asked;
  for (const std::string& name : topics) {
    Topic topic(rd_kafka_topic_new(started.client.get(), name.c_str(), nullptr));
    if (topic == nullptr || rd_kafka_consume_start_queue(topic.get(), kAnyPartition,
                                                         RD_KAFKA_OFFSET_END, queue.get()) != 0) {
      return FoundTopicStatus(name, rd_kafka_last_error());
    }
    started.topics.push_back(std::move(topic));
    asked.insert(name);
  }
  std::vector<std::string> rejected;
  const auto deadline = steady_clock::now() + timeout;
  while (!asked.empty()) {
    const milliseconds left = TimeLeft(deadline);
    const Message message(rd_kafka_consume_queue(queue.get(), static_cast<int>(left.count())));
    if (message != nullptr && message->rkt != nullptr) {
      const std::string name = rd_kafka_topic_name(message->rkt);
      const bool may_not = Classify(message->err) == delivery::FailureKind::kTopicNotAuthorized;
      // Its end, or a record that has come meanwhile.
      const bool may = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF ||
                       message->err == RD_KAFKA_RESP_ERR_NO_ERROR;
      if ((may || may_not) && asked.erase(name) > 0 && may_not) {
        rejected.push_back(name);
      }
    } else if (left.count() == 0) {
      return absl::UnavailableError(absl::StrFormat(
          "whether walpost's Kafka user may READ topic '%s' is not known: no answer within %d ms",
          *asked.begin(), timeout.count()));
    }
  }
  return rejected;
}

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
    check.found = TopicStatus(name, rd_kafka_last_error());
    return check;
  }
  const rd_kafka_metadata_t* raw = nullptr;
  const rd_kafka_resp_err_t error =
      rd_kafka_metadata(client, 0, topic.get(), &raw, static_cast<int>(timeout.count()));
  const Metadata metadata(raw);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    check.found = TopicStatus(name, error);
    return check;
  }
  const rd_kafka_metadata_topic_t& found = metadata->topics[0];
  if (found.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    check.found = TopicStatus(name, found.err);
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

bool IsUnseen(const TopicCheck& check) {
  return absl::IsNotFound(check.found) || absl::IsPermissionDenied(check.found);
}

// Some brokers show it. A client asks any of those that it is connected to.
absl::StatusOr<TopicCheck> CheckDisputed(const KafkaOptions& options, const std::string& name,
                                         std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  for (;;) {
    ASSIGN_OR_RETURN(const Producer client, MakeClient(options, RD_KAFKA_CONSUMER));
    const auto partitions = CountPartitions(options, client.get(), name, timeout);
    TopicCheck check = CheckTopic(client.get(), name, timeout);
    if (!partitions.ok() || !IsUnseen(check) || TimeLeft(deadline).count() == 0) {
      check.found = partitions.ok() ? check.found : partitions.status();
      return check;
    }
    rd_kafka_poll(client.get(), kLookAgainAfterMs);
  }
}

// The broker that was asked may not have heard of them.
absl::Status AskOthers(const KafkaOptions& options, std::chrono::milliseconds timeout,
                       std::vector<TopicCheck>* checks) {
  std::vector<std::string> names;
  for (const TopicCheck& check : *checks) {
    if (IsUnseen(check)) {
      names.push_back(check.topic);
    }
  }
  const auto unseen = FindUnseenTopics(options, names, timeout, UnseenFor());
  for (TopicCheck& check : *checks) {
    if (!IsUnseen(check)) {
      continue;
    }
    if (!unseen.ok()) {
      check.found = unseen.status();
    } else if (!unseen->contains(check.topic)) {
      ASSIGN_OR_RETURN(check, CheckDisputed(options, check.topic, timeout));
    }
  }
  return absl::OkStatus();
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
  RETURN_IF_ERROR(AskOthers(options, timeout, &check.topics));
  return check;
}

}  // namespace walpost::kafka
