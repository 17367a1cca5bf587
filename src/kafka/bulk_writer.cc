#include "kafka/bulk_writer.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/classify.h"
#include "kafka/client.h"
#include "kafka/properties.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLimitsTimeout{5'000};
constexpr milliseconds kPollStep{100};

std::string IdOf(std::span<const envelope::RecordHeader> headers) {
  const auto id = std::find_if(headers.begin(), headers.end(),
                               [](const auto& header) { return header.name == "id"; });
  return id == headers.end() ? "?" : std::string(id->value);
}

std::string IdOf(const rd_kafka_message_t& message) {
  rd_kafka_headers_t* list = nullptr;  // stays the message's
  const void* value = nullptr;
  std::size_t size = 0;
  const bool found =
      rd_kafka_message_headers(&message, &list) == RD_KAFKA_RESP_ERR_NO_ERROR &&
      rd_kafka_header_get(list, 0, "id", &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
  return found ? std::string(static_cast<const char*>(value), size) : "?";
}

absl::Status Refused(const std::string& id, const std::string& topic, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrFormat("topic '%s' does not take event '%s': %s", topic, id, why));
}

absl::Status StatusOf(const rd_kafka_message_t& report) {
  const std::string topic = rd_kafka_topic_name(report.rkt);
  switch (Classify(report.err)) {
    case delivery::FailureKind::kRecordTooLarge:
    case delivery::FailureKind::kRecordInvalid:
      return Refused(IdOf(report), topic, rd_kafka_err2str(report.err));
    default:
      return TopicStatus(topic, report.err);
  }
}

// A null value or key has a null pointer, an empty one has not.
char* Bytes(const std::optional<std::string_view>& text) {
  return text ? const_cast<char*>(text->data() != nullptr ? text->data() : "") : nullptr;
}

}  // namespace

absl::Status BulkWriter::MakeClient() {
  ASSIGN_OR_RETURN(Conf conf, BuildConf(options_, delivery::Sink::Mode::kFast, producer_limits_));
  std::array<char, 512> error{};
  for (const auto& [name, value] :
       {std::pair("max.in.flight.requests.per.connection", "1"), std::pair("linger.ms", "5")}) {
    if (rd_kafka_conf_set(conf.get(), name, value, error.data(), error.size()) !=
        RD_KAFKA_CONF_OK) {
      return absl::InternalError(absl::StrFormat("%s: %s", name, error.data()));
    }
  }
  rd_kafka_t* client = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), error.data(), error.size());
  if (client == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat("sink.kafka.properties: %s", error.data()));
  }
  (void)conf.release();  // rd_kafka_new took it
  client_ = OwnProducer(client);
  return absl::OkStatus();
}

// Also has a producer whose batches this topic takes: librdkafka cannot change them later.
absl::StatusOr<const BulkWriter::Target*> BulkWriter::TargetOf(const std::string& topic) {
  if (const auto found = targets_.find(topic); found != targets_.end()) {
    return &found->second;
  }
  if (client_ == nullptr) {
    producer_limits_.message_bytes_max = kMessageBytesEver;
    RETURN_IF_ERROR(MakeClient());
  }
  Target target;
  ASSIGN_OR_RETURN(target.partitions, CountPartitions(client_.get(), topic, patience_));
  // What may not be described has no known limits.
  target.limits = ReadTopicLimits(client_.get(), topic, std::min(patience_, kLimitsTimeout))
                      .value_or(TopicLimits());
  if (target.limits.message_bytes_max) {
    const std::int64_t batch = BatchBytesFor(*target.limits.message_bytes_max);
    if (batch < producer_limits_.batch_bytes_max.value_or(INT64_MAX)) {
      RETURN_IF_ERROR(Flush());
      producer_limits_.batch_bytes_max = batch;
      RETURN_IF_ERROR(MakeClient());
    }
  }
  return &targets_.emplace(topic, target).first->second;
}

absl::Status BulkWriter::Write(const envelope::Record& record) {
  RETURN_IF_ERROR(failure_);
  const std::string topic(record.topic);
  ASSIGN_OR_RETURN(const Target* target, TargetOf(topic));
  if (record.partition >= target->partitions) {
    return Refused(IdOf(record.headers), topic,
                   absl::StrFormat("it asks for partition %d, and there are %d", record.partition,
                                   target->partitions));
  }
  if (target->limits.message_bytes_max &&
      BatchBytesOf(record) > *target->limits.message_bytes_max) {
    return Refused(IdOf(record.headers), topic,
                   absl::StrFormat("it has %d bytes, and max.message.bytes is %d",
                                   BatchBytesOf(record), *target->limits.message_bytes_max));
  }
  std::int32_t partition = record.partition;
  if (partition < 0) {
    partition = record.key ? PartitionForKey(*record.key, target->partitions) : -1;
  }
  char* key = Bytes(record.key);
  char* value = Bytes(record.value);
  const std::size_t key_bytes = record.key ? record.key->size() : 0;
  const std::size_t value_bytes = record.value ? record.value->size() : 0;
  const std::size_t bytes = record.AccountedBytes();
  const std::size_t most = options_.in_flight_bytes_max;
  RETURN_IF_ERROR(AwaitAtMost(bytes < most ? most - bytes : 0));
  rd_kafka_headers_t* headers = MakeHeaders(record.headers);
  rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
  do {
// The RD_KAFKA_V_ macros are C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
    error = rd_kafka_producev(
        client_.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_PARTITION(partition),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, key_bytes),
        RD_KAFKA_V_VALUE(value, value_bytes), RD_KAFKA_V_HEADERS(headers),
        RD_KAFKA_V_OPAQUE(reinterpret_cast<void*>(static_cast<std::uintptr_t>(bytes))),
        RD_KAFKA_V_END);
#pragma GCC diagnostic pop
    // The user may have lowered a limit of librdkafka's queue.
  } while (error == RD_KAFKA_RESP_ERR__QUEUE_FULL && in_flight_bytes_ > 0 &&
           AwaitAtMost(in_flight_bytes_ - 1).ok());
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    rd_kafka_headers_destroy(headers);
    // A producer that gave up says so of every record: the first report tells why.
    TakeReports(kPollStep);
    return failure_.ok() ? TopicStatus(topic, error) : failure_;
  }
  in_flight_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status BulkWriter::Flush() { return AwaitAtMost(0); }

absl::Status BulkWriter::AwaitAtMost(std::size_t bytes) {
  auto deadline = steady_clock::now() + patience_;
  while (in_flight_bytes_ > bytes && failure_.ok()) {
    if (TakeReports(kPollStep)) {
      deadline = steady_clock::now() + patience_;
    } else if (steady_clock::now() > deadline) {
      failure_ = absl::UnavailableError(absl::StrFormat(
          "Kafka has acknowledged nothing for %d s: check that its brokers are there, that enough "
          "replicas are in sync, and that walpost's Kafka user may WRITE to the topic",
          std::chrono::duration_cast<std::chrono::seconds>(patience_).count()));
      rd_kafka_purge(client_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    }
  }
  return failure_;
}

bool BulkWriter::TakeReports(milliseconds wait) {
  const Queue queue(rd_kafka_queue_get_main(client_.get()));
  const Event event(rd_kafka_queue_poll(queue.get(), static_cast<int>(wait.count())));
  if (event == nullptr || rd_kafka_event_type(event.get()) != RD_KAFKA_EVENT_DR) {
    return false;
  }
  bool any = false;
  while (const rd_kafka_message_t* report = rd_kafka_event_message_next(event.get())) {
    any = true;
    in_flight_bytes_ -= reinterpret_cast<std::uintptr_t>(report->_private);
    if (report->err != RD_KAFKA_RESP_ERR_NO_ERROR && failure_.ok()) {
      failure_ = StatusOf(*report);
    }
  }
  return any;
}

}  // namespace walpost::kafka
