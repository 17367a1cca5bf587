#include "kafka/record_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/classify.h"
#include "kafka/client.h"

namespace walpost::kafka {
namespace {

using delivery::FailureKind;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

absl::Status WriteStatus(const std::string& topic, rd_kafka_resp_err_t error) {
  const FailureKind kind = Classify(error);
  if (kind == FailureKind::kRecordTooLarge || kind == FailureKind::kRecordInvalid) {
    return absl::InvalidArgumentError(
        absl::StrFormat("topic '%s' does not take this record: %s (%s)", topic,
                        rd_kafka_err2str(error), rd_kafka_err2name(error)));
  }
  return TopicStatus(topic, error);
}

}  // namespace

absl::Status RecordWriter::Connect() {
  ProducerLimits limits;
  limits.message_bytes_max = kRequestBytesMax;
  ASSIGN_OR_RETURN(client_, MakeClient(options_, RD_KAFKA_PRODUCER, limits));
  return absl::OkStatus();
}

absl::StatusOr<std::int32_t> RecordWriter::PartitionsOf(const std::string& topic) {
  const auto found = partitions_.find(topic);
  if (found != partitions_.end()) {
    return found->second;
  }
  RETURN_IF_ERROR(Connect());  // only a new client asks each broker
  ASSIGN_OR_RETURN(const std::int32_t partitions, CountPartitions(client_.get(), topic, timeout_));
  return partitions_[topic] = partitions;
}

std::int64_t RecordWriter::TimestampOf(const envelope::Record& record, const std::string& topic,
                                       base::WallTime now) {
  if (record.timestamp_ms == 0) {
    return 0;
  }
  auto found = limits_.find(topic);
  if (found == limits_.end()) {
    // What may not be described has no known limits.
    const auto limits = ReadTopicLimits(client_.get(), topic, std::min(timeout_, kLimitsTimeout));
    found = limits_.emplace(topic, limits.value_or(TopicLimits())).first;
  }
  return SafeTimestampMs(record.timestamp_ms, found->second, now);
}

absl::StatusOr<std::int64_t> RecordWriter::Write(const envelope::Record& record,
                                                 base::WallTime now) {
  const std::string topic(record.topic);
  ASSIGN_OR_RETURN(const std::int32_t partitions, PartitionsOf(topic));
  if (client_ == nullptr) {
    RETURN_IF_ERROR(Connect());
  }
  std::int32_t partition = record.partition;
  if (partition >= partitions) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the event asks for partition %d and topic '%s' has %d partitions",
                        partition, topic, partitions));
  }
  if (partition < 0) {
    partition = record.key ? PartitionForKey(*record.key, partitions) : -1;
  }
  const std::int64_t timestamp_ms = TimestampOf(record, topic, now);
  rd_kafka_headers_t* headers = MakeHeaders(record.headers);
  // A null value or key has a null pointer, an empty one has not.
  const auto bytes = [](const std::optional<std::string_view>& text) {
    return text ? const_cast<char*>(text->data() != nullptr ? text->data() : "") : nullptr;
  };
  char* key = bytes(record.key);
  char* value = bytes(record.value);
  const std::size_t key_bytes = record.key ? record.key->size() : 0;
  const std::size_t value_bytes = record.value ? record.value->size() : 0;
// The RD_KAFKA_V_ macros are C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
  const rd_kafka_resp_err_t error = rd_kafka_producev(
      client_.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_PARTITION(partition),
      RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, key_bytes),
      RD_KAFKA_V_VALUE(value, value_bytes), RD_KAFKA_V_HEADERS(headers),
      RD_KAFKA_V_TIMESTAMP(timestamp_ms), RD_KAFKA_V_END);
#pragma GCC diagnostic pop
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    rd_kafka_headers_destroy(headers);
    return WriteStatus(topic, error);
  }
  absl::StatusOr<std::int64_t> offset = AwaitReport(topic);
  if (absl::IsUnavailable(offset.status())) {
    client_.reset();  // nothing of it may arrive later than what is written next
  }
  return offset;
}

absl::StatusOr<std::int64_t> RecordWriter::AwaitReport(const std::string& topic) {
  const Queue queue(rd_kafka_queue_get_main(client_.get()));
  const auto deadline = steady_clock::now() + timeout_;
  for (;;) {
    const milliseconds left = TimeLeft(deadline);
    if (left.count() == 0) {
      break;
    }
    const Event event(rd_kafka_queue_poll(queue.get(), static_cast<int>(left.count())));
    if (event == nullptr || rd_kafka_event_type(event.get()) != RD_KAFKA_EVENT_DR) {
      continue;
    }
    const rd_kafka_message_t* report = rd_kafka_event_message_next(event.get());
    if (report == nullptr) {
      return absl::InternalError("an empty delivery report");
    }
    RETURN_IF_ERROR(WriteStatus(topic, report->err));
    return report->offset;
  }
  rd_kafka_purge(client_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  return absl::UnavailableError(absl::StrFormat(
      "Kafka did not acknowledge a record for topic '%s' within %d ms, so whether it arrived is "
      "not known: may walpost's Kafka user WRITE to the topic?",
      topic, timeout_.count()));
}

}  // namespace walpost::kafka
