#include "kafka/dead_letter_outlet.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "envelope/control_records.h"
#include "kafka/client.h"

namespace walpost::kafka {

absl::Status DeadLetterOutlet::Publish(const std::vector<base::DeadLetter>& rows) {
  absl::Status status = TakeReports();
  for (const base::DeadLetter& row : rows) {
    status.Update(Write(row));
  }
  return status;
}

absl::Status DeadLetterOutlet::Write(const base::DeadLetter& row) {
  if (client_ == nullptr) {
    ProducerLimits limits;
    limits.message_bytes_max = kRequestBytesMax;
    ASSIGN_OR_RETURN(client_, MakeClient(options_, RD_KAFKA_PRODUCER, limits));
  }
  // A kept row has columns, too, that are in no record, and readers of topics are not those of the
  // table.
  const std::optional<std::string> value = row.keeps_row() ? std::nullopt : row.value;
  std::vector<envelope::RecordHeader> headers = envelope::HeadersOf(row);
  const auto description = envelope::DescribeForTopic(row, pipeline_);
  for (const auto& [name, text] : description) {
    headers.push_back({name, text});
  }
  envelope::Record record;
  record.key = row.key;
  record.value = value;
  record.headers = headers;
  const std::size_t bytes = record.AccountedBytes();
  if (bytes_ + bytes > kBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("topic '%s' does not take them fast enough", topic_));
  }
  rd_kafka_headers_t* list = MakeHeaders(headers);
  const rd_kafka_resp_err_t error =
      Produce(client_.get(), topic_.c_str(), RD_KAFKA_PARTITION_UA, row.key, value, list, bytes);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    rd_kafka_headers_destroy(list);
    return TopicStatus(topic_, error);
  }
  bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status DeadLetterOutlet::TakeReports() {
  absl::Status status = absl::OkStatus();
  if (client_ == nullptr) {
    return status;
  }
  const Queue queue(rd_kafka_queue_get_main(client_.get()));
  for (;;) {
    const Event event(rd_kafka_queue_poll(queue.get(), 0));
    if (event == nullptr) {
      break;
    }
    while (const rd_kafka_message_t* report = rd_kafka_event_type(event.get()) == RD_KAFKA_EVENT_DR
                                                  ? rd_kafka_event_message_next(event.get())
                                                  : nullptr) {
      bytes_ -= reinterpret_cast<std::uintptr_t>(report->_private);
      status.Update(TopicStatus(topic_, report->err));
    }
  }
  if (!status.ok()) {
    // It will not go on behind a record that failed.
    rd_kafka_purge(client_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT |
                                      RD_KAFKA_PURGE_F_NON_BLOCKING);
    client_.reset();
    bytes_ = 0;
  }
  return status;
}

}  // namespace walpost::kafka
