#include "kafka/client.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <threads.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/held_rejections.h"
#include "kafka/properties.h"

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
  // A new topic conf would have librdkafka's defaults, a message.timeout.ms of 5 minutes among
  // them.
  rd_kafka_topic_conf_t* conf = rd_kafka_default_topic_conf_dup(producer);
  rd_kafka_topic_conf_set_opaque(conf, opaque);
  return Topic(rd_kafka_topic_new(producer, name.c_str(), conf));  // frees conf in any case
}

bool WaitForDestroyed(std::chrono::milliseconds timeout) {
  Pending* pending = PendingDestroys();
  std::unique_lock<std::mutex> lock(pending->mutex);
  return pending->changed.wait_for(lock, timeout, [pending] { return pending->count == 0; });
}

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace

void UseMonotonicWaits() {}

std::string LibrdkafkaVersion() { return rd_kafka_version_str(); }

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
  record.topic = rd_kafka_topic_name(message.rkt);
  if (message.key != nullptr) {
    record.key.emplace(static_cast<const char*>(message.key), message.key_len);
  }
  if (message.payload != nullptr) {
    record.value.emplace(static_cast<const char*>(message.payload), message.len);
  }
  record.headers = *headers;
  return record;
}

namespace {

using base::BrokerFigures;
using Json = nlohmann::json;

constexpr double kMicroseconds = 1e-6;
constexpr double kMilliseconds = 1e-3;

// {"brokers": {"host:9092/1": {"nodeid": 1, "rtt": {"p99": 700}}}, "topics": ...}
class BrokerReader final : public nlohmann::json_sax<Json> {
 public:
  std::vector<BrokerFigures> Take() { return std::move(brokers_); }

  bool null() override { return true; }

  bool boolean(bool /*value*/) override { return true; }

  bool number_integer(number_integer_t value) override {
    return Number(static_cast<double>(value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<double>(value));
  }

  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return Number(value);
  }

  bool string(string_t& value) override {
    if (OfBroker() && key_ == "nodename") {
      broker_.address = value;
    } else if (OfBroker() && key_ == "state") {
      broker_.up = value == "UP";
    }
    return true;
  }

  bool binary(binary_t& /*value*/) override { return true; }

  bool start_object(std::size_t /*elements*/) override {
    path_.push_back(key_);
    if (OfBroker()) {
      broker_ = BrokerFigures();
      node_ = -1;
    }
    return true;
  }

  bool key(string_t& name) override {
    key_ = name;
    return true;
  }

  bool end_object() override {
    if (OfBroker() && node_ >= 0) {
      brokers_.push_back(broker_);
    }
    const bool last = path_.size() == 2 && path_[1] == "brokers";
    path_.pop_back();
    return !last;
  }

  bool start_array(std::size_t /*elements*/) override { return true; }

  bool end_array() override { return true; }

  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  bool OfBroker() const { return path_.size() == 3 && path_[1] == "brokers"; }

  bool Number(double value) {
    if (path_.size() == 4 && path_[1] == "brokers") {
      if (path_[3] == "rtt" && key_ == "p99") {
        broker_.round_trip_p99 = value * kMicroseconds;
      } else if (path_[3] == "throttle" && key_ == "max") {
        broker_.throttle_max = value * kMilliseconds;
      }
    } else if (OfBroker() && key_ == "nodeid") {
      node_ = value;
    } else if (OfBroker()) {
      Count(static_cast<std::uint64_t>(std::max(value, 0.0)));
    }
    return true;
  }

  void Count(std::uint64_t value) {
    const std::pair<const char*, std::uint64_t*> counts[] = {
        {"outbuf_cnt", &broker_.queued_requests}, {"waitresp_cnt", &broker_.waiting_requests},
        {"txerrs", &broker_.send_errors},         {"rxerrs", &broker_.receive_errors},
        {"txretries", &broker_.retries},          {"req_timeouts", &broker_.timeouts},
        {"disconnects", &broker_.disconnects}};
    for (const auto& [name, count] : counts) {
      if (key_ == name) {
        *count = value;
      }
    }
  }

  std::vector<std::string> path_;  // the first is the document's own
  std::string key_;
  BrokerFigures broker_;
  double node_ = -1;  // of the cluster; -1 = a name that was only bootstrapped with, or a role
  std::vector<BrokerFigures> brokers_;
};

}  // namespace

std::vector<BrokerFigures> ReadBrokers(std::string_view statistics) {
  BrokerReader reader;
  Json::sax_parse(statistics.begin(), statistics.end(), &reader);
  std::vector<BrokerFigures> brokers = reader.Take();
  std::sort(brokers.begin(), brokers.end(),
            [](const BrokerFigures& a, const BrokerFigures& b) { return a.address < b.address; });
  return brokers;
}

}  // namespace walpost::kafka

// The C library's cnd_t and mtx_t are its pthread_cond_t and pthread_mutex_t under another name.
static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t) && alignof(cnd_t) == alignof(pthread_cond_t));
static_assert(sizeof(mtx_t) <= sizeof(pthread_mutex_t) &&
              alignof(mtx_t) == alignof(pthread_mutex_t));

extern "C" int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* end) {
  using walpost::kafka::kSecond;
  const std::int64_t left =
      end->tv_sec * kSecond + end->tv_nsec - walpost::kafka::Now(CLOCK_REALTIME);
  const std::int64_t until = walpost::kafka::Now(CLOCK_MONOTONIC) + (left > 0 ? left : 0);
  const timespec monotonic{until / kSecond, until % kSecond};
  const int code = pthread_cond_clockwait(reinterpret_cast<pthread_cond_t*>(condition),
                                          reinterpret_cast<pthread_mutex_t*>(mutex),
                                          CLOCK_MONOTONIC, &monotonic);
  return code == 0 ? thrd_success : code == ETIMEDOUT ? thrd_timedout : thrd_error;
}
