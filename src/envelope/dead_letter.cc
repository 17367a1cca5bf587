#include "envelope/dead_letter.h"

#include "outbox/message_mapper.h"

namespace walpost::envelope {

using base::DeadLetter;

std::vector<std::pair<std::string_view, std::string>> DescribeForTopic(const DeadLetter& row,
                                                                       std::string_view pipeline) {
  std::vector<std::pair<std::string_view, std::string>> headers;
  headers.emplace_back("walpost-dlq", row.parked ? "parked" : "dead_letter");
  const auto add = [&headers](std::string_view name, std::string_view text) {
    if (!text.empty()) {
      headers.emplace_back(name, text.substr(0, DeadLetter::kTextBytesMax));
    }
  };
  add("walpost-dlq-pipeline", pipeline);
  add("walpost-dlq-reason", row.reason);
  add("walpost-dlq-detail", row.detail);
  add("walpost-dlq-id", row.event_id);
  add("walpost-dlq-type", row.event_type);
  add("walpost-dlq-table", row.source);
  add("walpost-dlq-topic", row.topic);
  add("walpost-dlq-position", row.position);
  add("walpost-dlq-schema", row.schema);
  if (row.attempts > 0) {
    add("walpost-dlq-attempts", std::to_string(row.attempts));
  }
  if (row.partition >= 0) {
    add("walpost-dlq-partition", std::to_string(row.partition));
  }
  if (row.event_time_ms != 0) {
    add("walpost-dlq-timestamp-ms", std::to_string(row.event_time_ms));
  }
  if (row.truncated_bytes) {
    add("walpost-dlq-truncated-bytes", std::to_string(*row.truncated_bytes));
  }
  return headers;
}

void TakeRecord(const Record& record, DeadLetter* row) {
  const bool only_here = row->reason == kKeyParked || outbox::IsMessageLabel(row->source);
  TakeRecord(record, row,
             only_here ? DeadLetter::kOnlyRecordBytesMax : DeadLetter::kRecordBytesMax);
}

void TakeRecord(const Record& record, DeadLetter* row, std::size_t bytes_max) {
  std::size_t bytes = record.value ? record.value->size() : 0;
  for (const RecordHeader& header : record.headers) {
    bytes += header.name.size() + header.value.size();
  }
  const bool fits = bytes <= bytes_max;
  if (!fits && !row->truncated_bytes) {
    row->truncated_bytes = bytes;
  }
  const bool whole = !row->truncated_bytes;
  if (record.key && (whole || row->parked || record.key->size() <= kTruncatedKeyBytesMax)) {
    row->key = std::string(*record.key);
  }
  if (!fits) {
    return;
  }
  if (record.value) {
    row->value = std::string(*record.value);
  }
  for (const RecordHeader& header : record.headers) {
    DeadLetter::Header& added = row->headers.emplace_back();
    added.name = header.name;
    if (header.value.data() != nullptr) {
      added.value = std::string(header.value);
    }
  }
}

std::vector<RecordHeader> RedeliveryHeaders(std::span<const RecordHeader> event_headers,
                                            std::string_view kind, std::string_view position) {
  std::vector<RecordHeader> headers;
  for (const RecordHeader& header : event_headers) {
    if (header.name != "walpost-position") {
      headers.push_back(header);
    }
  }
  headers.push_back({"walpost-redelivery", kind});
  if (!position.empty()) {
    headers.push_back({"walpost-original-position", position});
  }
  return headers;
}

std::vector<RecordHeader> HeadersOf(const DeadLetter& row) {
  std::vector<RecordHeader> headers;
  for (const DeadLetter::Header& header : row.headers) {
    headers.push_back({header.name, header.value ? *header.value : std::string_view()});
  }
  return headers;
}

std::vector<RecordHeader> RedeliveryHeaders(const DeadLetter& row, std::string_view kind) {
  return RedeliveryHeaders(HeadersOf(row), kind, row.position);
}

}  // namespace walpost::envelope
