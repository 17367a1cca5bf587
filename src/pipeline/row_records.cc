#include "pipeline/row_records.h"

#include <algorithm>

#include "envelope/control_records.h"
#include "outbox/message_mapper.h"
#include "outbox/table_mapper.h"

namespace walpost::pipeline {

using base::DeadLetter;

RowRecords::RowRecords(const PipelineOptions& options, envelope::SchemaTable* schemas)
    : schemas_(schemas) {
  for (const envelope::OutboxOptions& outbox : options.outboxes) {
    tables_.push_back(outbox.table.schema + "." + outbox.table.table);
  }
}

bool RowRecords::HasRecord(const DeadLetter& row) {
  const bool has_schema = row.schema.empty() || envelope::ParseNeed(row.schema).ok();
  return !row.truncated_bytes && row.reason != envelope::kMessageMalformed && has_schema;
}

envelope::Record RowRecords::Of(const DeadLetter& row, std::string_view topic,
                                std::vector<envelope::RecordHeader>* headers) const {
  envelope::Record record;
  record.topic = topic;
  if (row.key) {
    record.key = *row.key;
  }
  if (row.value) {
    record.value = *row.value;
  }
  *headers = envelope::RedeliveryHeaders(row, "dlq-retry");
  record.headers = *headers;
  record.partition = row.send_to.empty() ? row.partition : -1;  // another topic has others
  record.timestamp_ms = row.event_time_ms;
  if (!row.schema.empty() && row.value) {
    envelope::SchemaNeed need = *envelope::ParseNeed(row.schema);
    need.source = SourceOf(row.source);
    record.schema = schemas_->RefOf(need);
  }
  return record;
}

std::uint32_t RowRecords::SourceOf(const std::string& source) const {
  if (outbox::IsMessageLabel(source)) {
    return static_cast<std::uint32_t>(tables_.size());
  }
  const auto found = std::find(tables_.begin(), tables_.end(), source);
  return found == tables_.end() ? envelope::SchemaNeed::kNoSource
                                : static_cast<std::uint32_t>(found - tables_.begin());
}

Destinations::Destinations(const PipelineOptions& options) {
  for (const envelope::OutboxOptions& outbox : options.outboxes) {
    rules_.push_back(outbox::TableMapper(outbox.table).topic_rules());
  }
  if (!options.messages.prefixes.empty()) {
    rules_.push_back(
        outbox::MessageMapper(options.messages.topic, options.messages.topics).topic_rules());
  }
}

bool Destinations::Allow(std::uint32_t table, std::string_view topic) const {
  return !rules_.empty() &&
         rules_[std::min<std::size_t>(table, rules_.size() - 1)].Check(topic).ok();
}

absl::Status Destinations::Check(std::string_view topic) const {
  absl::Status status = absl::OkStatus();
  for (const outbox::TopicRules& rules : rules_) {
    status = rules.Check(topic);
    if (status.ok()) {
      break;
    }
  }
  return status;
}

}  // namespace walpost::pipeline
