#include "kafka/client.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/classify.h"
#include "kafka/properties.h"

namespace walpost::kafka {

absl::StatusOr<Producer> MakeClient(const KafkaOptions& options, rd_kafka_type_t type,
                                    const ProducerLimits& limits, Isolation isolation) {
  ASSIGN_OR_RETURN(Conf conf, BuildConf(options, delivery::Sink::Mode::kOneAtATime, limits));
  std::array<char, 512> error{};
  if (type == RD_KAFKA_CONSUMER) {
    for (const auto& [name, value] :
         {std::pair("isolation.level",
                    isolation == Isolation::kReadCommitted ? "read_committed" : "read_uncommitted"),
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
    return absl::InvalidArgumentError("sink.kafka.properties: " + Shown(error.data(), options));
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

absl::Status FoundTopicStatus(const std::string& topic, rd_kafka_resp_err_t error) {
  absl::Status status = TopicStatus(topic, error);
  return absl::IsNotFound(status) ? absl::UnavailableError(status.message()) : status;
}

rd_kafka_resp_err_t AskOffsets(rd_kafka_t* client, const std::string& topic,
                               std::int32_t partitions, std::int64_t of,
                               std::chrono::milliseconds timeout,
                               std::vector<std::int64_t>* offsets) {
  const std::unique_ptr<rd_kafka_topic_partition_list_t,
                        decltype(&rd_kafka_topic_partition_list_destroy)>
      list(rd_kafka_topic_partition_list_new(partitions), rd_kafka_topic_partition_list_destroy);
  for (std::int32_t partition = 0; partition < partitions; ++partition) {
    rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), partition)->offset = of;
  }
  rd_kafka_resp_err_t error =
      rd_kafka_offsets_for_times(client, list.get(), static_cast<int>(timeout.count()));
  offsets->assign(static_cast<std::size_t>(partitions), 0);
  for (int i = 0; i < list->cnt && error == RD_KAFKA_RESP_ERR_NO_ERROR; ++i) {
    error = list->elems[i].err;
    offsets->at(static_cast<std::size_t>(list->elems[i].partition)) = list->elems[i].offset;
  }
  return error;
}

std::chrono::milliseconds TimeLeft(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  return std::max(milliseconds(0),
                  std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()));
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAskAgainAfter{100};
constexpr int kAskNextAfterMs = 1;

void Add(const std::vector<std::int32_t>& leaders, TopicLeaders* answer) {
  answer->leaders.resize(std::max(answer->leaders.size(), leaders.size()), -1);
  for (std::size_t partition = 0; partition < leaders.size(); ++partition) {
    std::int32_t& known = answer->leaders[partition];
    const std::int32_t leader = leaders[partition];
    if (leader >= 0 && known >= 0 && leader != known) {
      answer->dispute = absl::StrFormat("brokers name both %d and %d as the leader of partition %d",
                                        known, leader, partition);
    }
    known = leader >= 0 ? leader : known;
  }
}

// Any broker answers. Its number of partitions.
absl::StatusOr<std::size_t> AskABroker(rd_kafka_t* client, const std::string& topic,
                                       milliseconds timeout, Brokers* brokers,
                                       TopicLeaders* answer) {
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
  brokers->OnAnswer(*metadata);
  if (metadata->topic_cnt != 1) {
    return TopicStatus(topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  }
  RETURN_IF_ERROR(TopicStatus(topic, metadata->topics[0].err));
  const std::vector<std::int32_t> leaders = LeadersOf(metadata->topics[0]);
  Add(leaders, answer);
  return leaders.size();
}

}  // namespace

std::vector<std::int32_t> LeadersOf(const rd_kafka_metadata_topic_t& topic) {
  std::vector<std::int32_t> leaders(static_cast<std::size_t>(topic.partition_cnt), -1);
  for (int i = 0; i < topic.partition_cnt; ++i) {
    const auto id = static_cast<std::size_t>(topic.partitions[i].id);
    if (id < leaders.size()) {
      leaders[id] = topic.partitions[i].leader;
    }
  }
  return leaders;
}

void Brokers::OnAnswer(const rd_kafka_metadata_t& metadata) {
  answered.insert(metadata.orig_broker_id);
  for (int i = 0; i < metadata.broker_cnt; ++i) {
    known.insert(metadata.brokers[i].id);
  }
}

absl::StatusOr<TopicLeaders> AskForLeaders(rd_kafka_t* client, const std::string& topic,
                                           milliseconds timeout, milliseconds right_wait) {
  const auto deadline = steady_clock::now() + timeout;
  const auto unknown_at = std::min(deadline, steady_clock::now() + kUnknownFor);
  const auto denied_at = std::min(deadline, steady_clock::now() + right_wait);
  const auto believed = [&](const absl::Status& status) {
    return (!absl::IsNotFound(status) || TimeLeft(unknown_at) <= kAskAgainAfter) &&
           (!absl::IsPermissionDenied(status) || TimeLeft(denied_at) <= kAskAgainAfter);
  };
  Brokers brokers;
  TopicLeaders answer;
  absl::StatusOr<std::size_t> last = AskABroker(client, topic, timeout, &brokers, &answer);
  while (!believed(last.status())) {
    rd_kafka_poll(client, static_cast<int>(kAskAgainAfter.count()));
    last = AskABroker(client, topic, TimeLeft(deadline), &brokers, &answer);
  }
  if (absl::IsNotFound(last.status()) && unknown_at == deadline) {
    return absl::UnavailableError(last.status().message());  // there was no time to believe it
  }
  RETURN_IF_ERROR(last.status());
  auto until = std::min(deadline, steady_clock::now() + kNextBrokerFor);
  // The client itself goes by the last answer.
  while ((!brokers.all_answered() && TimeLeft(until).count() > 0) ||
         (last.value_or(0) < answer.leaders.size() && TimeLeft(deadline).count() > 0)) {
    const std::size_t answered = brokers.answered.size();
    last = AskABroker(client, topic, TimeLeft(deadline), &brokers, &answer);
    if (brokers.answered.size() > answered) {
      until = std::min(deadline, steady_clock::now() + kNextBrokerFor);
    }
    rd_kafka_poll(client, kAskNextAfterMs);
  }
  return answer;
}

absl::StatusOr<std::int32_t> CountPartitions(rd_kafka_t* client, const std::string& topic,
                                             milliseconds timeout, milliseconds right_wait) {
  ASSIGN_OR_RETURN(const TopicLeaders answer, AskForLeaders(client, topic, timeout, right_wait));
  return static_cast<std::int32_t>(answer.leaders.size());
}

rd_kafka_headers_t* MakeHeaders(std::span<const envelope::RecordHeader> headers) {
  rd_kafka_headers_t* list = rd_kafka_headers_new(headers.size());
  for (const envelope::RecordHeader& header : headers) {
    rd_kafka_header_add(list, header.name.data(), static_cast<ssize_t>(header.name.size()),
                        header.value.data(), static_cast<ssize_t>(header.value.size()));
  }
  return list;
}

rd_kafka_resp_err_t Produce(rd_kafka_t* client, const char* topic, std::int32_t partition,
                            const std::optional<std::string_view>& key,
                            const std::optional<std::string_view>& value,
                            rd_kafka_headers_t* headers, std::uint64_t opaque) {
  // A null value or key has a null pointer, an empty one has not.
  const auto data = [](const std::optional<std::string_view>& text) {
    return text ? const_cast<char*>(text->empty() ? "" : text->data()) : nullptr;
  };
  const auto size = [](const std::optional<std::string_view>& text) {
    return text ? text->size() : 0;
  };
// The RD_KAFKA_V_ macros are C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
  return rd_kafka_producev(
      client, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
      RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(data(key), size(key)),
      RD_KAFKA_V_VALUE(data(value), size(value)), RD_KAFKA_V_HEADERS(headers),
      RD_KAFKA_V_OPAQUE(reinterpret_cast<void*>(static_cast<std::uintptr_t>(opaque))),
      RD_KAFKA_V_END);
#pragma GCC diagnostic pop
}

void ReadHeaders(const rd_kafka_message_t& message, std::vector<envelope::RecordHeader>* headers) {
  headers->clear();
  rd_kafka_headers_t* list = nullptr;  // stays the message's
  if (rd_kafka_message_headers(&message, &list) != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return;
  }
  const char* name = nullptr;
  const void* value = nullptr;
  std::size_t size = 0;
  for (std::size_t i = 0;
       rd_kafka_header_get_all(list, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; ++i) {
    headers->push_back({name, std::string_view(static_cast<const char*>(value), size)});
  }
}

envelope::Record RecordIn(const rd_kafka_message_t& message,
                          std::vector<envelope::RecordHeader>* headers) {
  ReadHeaders(message, headers);
  envelope::Record record;
  if (message.key != nullptr) {
    record.key.emplace(static_cast<const char*>(message.key), message.key_len);
  }
  if (message.payload != nullptr) {
    record.value.emplace(static_cast<const char*>(message.payload), message.len);
  }
  record.headers = *headers;
  return record;
}

}  // namespace walpost::kafka
