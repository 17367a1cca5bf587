#include "pipeline/row_records.h"

#include <glog/logging.h>

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

using envelope::SchemaTable;
using State = SchemaTable::State;

bool SchemaLookUps::Refreshable(const SchemaTable::Entry& entry) const {
  return entry.state == State::kKnown && !entry.fixed && entry.used;
}

std::optional<SchemaLookUp> SchemaLookUps::Take(base::Now now) {
  if (asking_ || now.mono < ask_at_ || (table_.wanted() == 0 && now.mono < look_at_)) {
    return std::nullopt;
  }
  look_at_ = now.mono + kLookEvery;
  times_.resize(table_.size());
  if (epoch_ != table_.epoch()) {
    epoch_ = table_.epoch();
    ForgetUnclear();  // refs may be about other schemas
  }
  SchemaLookUp look_up;
  for (SchemaTable::Ref ref = 1; ref <= table_.size(); ++ref) {
    const bool due = now.mono >= times_[ref - 1].due;
    if (due && table_.entry(ref).state == State::kRejected) {
      table_.Forget(ref);
    }
    const SchemaTable::Entry& entry = table_.entry(ref);
    const bool waits = entry.state == State::kUnknown && entry.wanted;
    if ((waits || (due && Refreshable(entry))) && look_up.needs.size() < kNeedsMax) {
      look_up.needs.emplace_back(ref, entry.need);
    }
  }
  if (look_up.needs.empty()) {
    return std::nullopt;
  }
  asking_ = true;
  return look_up;
}

void SchemaLookUps::OnAnswers(const SchemaLookUp& look_up, const SchemaAnswers& answers,
                              base::Now now) {
  CHECK(asking_ && !answers.empty() && answers.size() <= look_up.needs.size());
  asking_ = false;
  bool unclear = false;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (absl::IsUnavailable(answers[i].status())) {
      ++statistics_.failures;
      trouble_ = std::string(answers[i].status().message());
      ForgetUnclear();
      unclear_decided_at_.reset();
      ask_at_ = now.mono + backoff_.Next();
      return;
    }
    if (Decides(look_up.needs[i].first, answers[i].status(), now)) {
      Judge(look_up.needs[i].first, answers[i], now);
      continue;
    }
    ++statistics_.failures;
    if (!unclear) {
      trouble_ = std::string(answers[i].status().message());
    }
    unclear = true;
  }
  backoff_.Reset();
  if (unclear) {
    ask_at_ = now.mono + kLookEvery;
    return;
  }
  trouble_.clear();
  ask_at_ = now.mono;
}

// Or there is a schema.
bool SchemaLookUps::Decides(SchemaTable::Ref ref, const absl::Status& answer, base::Now now) {
  Unclear& unclear = times_[ref - 1].unclear;
  if (!absl::IsAborted(answer)) {
    unclear = {};
    return true;
  }
  const auto since_last = now.mono - unclear.at.value_or(now.mono);
  unclear.passed +=
      std::min(std::chrono::duration_cast<std::chrono::milliseconds>(since_last), 2 * kLookEvery);
  unclear.at = now.mono;
  const bool waits = table_.entry(ref).state == State::kUnknown;  // else it is a refresh
  const bool again = waits && unclear_decided_at_ && now.mono < *unclear_decided_at_ + kUnclearKept;
  if (unclear.passed < (again ? kUnclearAgain : kUnclearWait)) {
    return false;
  }
  if (waits) {
    unclear_decided_at_ = now.mono;
  }
  unclear = {};
  return true;
}

void SchemaLookUps::ForgetUnclear() {
  for (Times& times : times_) {
    times.unclear = {};
  }
}

void SchemaLookUps::Judge(SchemaTable::Ref ref, const absl::StatusOr<envelope::Schema>& answer,
                          base::Now now) {
  ++statistics_.look_ups;
  const absl::StatusOr<std::string> frame =
      answer.ok() ? envelope::FrameOf(table_.entry(ref).need, *answer) : answer.status();
  if (frame.ok()) {
    table_.Learn(ref, *frame, answer->fixed);
    times_[ref - 1].due = now.mono + refresh_;
    return;
  }
  ++statistics_.rejections;
  const bool known = table_.entry(ref).state == State::kKnown;
  table_.Reject(ref, std::string(frame.status().message()), absl::IsAborted(answer.status()));
  times_[ref - 1].due = now.mono + (known ? refresh_ : kRejectionKept);
}

void SchemaLookUps::Resume(base::Now now) {
  table_.ForgetRejections();
  ForgetUnclear();
  unclear_decided_at_.reset();
  backoff_.Reset();
  ask_at_ = now.mono;
}

std::optional<base::MonotonicTime> SchemaLookUps::NextDeadline() const {
  return asking_ || table_.wanted() == 0 ? std::nullopt : std::optional(ask_at_);
}

}  // namespace walpost::pipeline
