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
  SchemaLookUp look_up;
  for (const SchemaTable::Ref ref : FindDue(now.mono)) {
    TimesOf(ref).asked_at = now.mono;
    look_up.needs.emplace_back(ref, table_.entry(ref).need);
  }
  if (look_up.needs.empty()) {
    ask_at_ = table_.wanted() > 0 ? now.mono + kPause : ask_at_;
    return std::nullopt;
  }
  asking_ = true;
  return look_up;
}

// What was not asked for yet comes first, and what was unclear gets its share.
std::vector<SchemaTable::Ref> SchemaLookUps::FindDue(base::MonotonicTime now) {
  times_.resize(table_.size());
  std::vector<SchemaTable::Ref> refs;
  std::vector<SchemaTable::Ref> unclear;
  std::vector<SchemaTable::Ref> refresh;
  for (SchemaTable::Ref ref = 1; ref <= table_.size(); ++ref) {
    Times& times = TimesOf(ref);
    const bool due = now >= times.due;
    if (due && table_.entry(ref).state == State::kRejected) {
      table_.Forget(ref);
    }
    if (times.unclear_since && now - times.asked_at > kUnclearKept) {
      times.unclear_since.reset();
    }
    const SchemaTable::Entry& entry = table_.entry(ref);
    const bool waits = entry.state == State::kUnknown && entry.wanted;
    if (waits && !times.unclear_since) {
      refs.push_back(ref);
    } else if (waits && now >= times.asked_at + kLookEvery) {
      unclear.push_back(ref);
    } else if (due && Refreshable(entry)) {
      refresh.push_back(ref);
    }
  }
  std::sort(unclear.begin(), unclear.end(), [this](SchemaTable::Ref a, SchemaTable::Ref b) {
    return std::pair(TimesOf(a).asked_at, a) < std::pair(TimesOf(b).asked_at, b);
  });
  unclear.resize(std::min(unclear.size(), kUnclearTogether));
  refs.resize(std::min(refs.size(), kNeedsMax - unclear.size()));
  refs.insert(refs.end(), unclear.begin(), unclear.end());
  refs.insert(refs.end(), refresh.begin(), refresh.end());
  refs.resize(std::min(refs.size(), kNeedsMax));
  return refs;
}

// A ref may have come to mean another schema.
SchemaLookUps::Times& SchemaLookUps::TimesOf(SchemaTable::Ref ref) {
  Times& times = times_[ref - 1];
  if (times.made_in != table_.entry(ref).made_in) {
    times = Times();
    times.made_in = table_.entry(ref).made_in;
  }
  return times;
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
      ask_at_ = now.mono + backoff_.Next();
      return;
    }
    if (Decides(look_up.needs[i].first, answers[i].status(), now)) {
      Judge(look_up.needs[i].first, answers[i], now);
      continue;
    }
    ++statistics_.failures;
    unclear = true;
    trouble_ = std::string(answers[i].status().message());
  }
  backoff_.Reset();
  ask_at_ = now.mono;
  if (!unclear && !AnyUnclear()) {
    trouble_.clear();
  }
}

// Or there is a schema.
bool SchemaLookUps::Decides(SchemaTable::Ref ref, const absl::Status& answer, base::Now now) {
  Times& times = TimesOf(ref);
  if (!absl::IsAborted(answer)) {
    times.unclear_since.reset();
    if (!unclear_decided_ && !AnyUnclear()) {
      unclear_since_.reset();
    }
    return true;
  }
  if (table_.entry(ref).state != State::kUnknown) {  // a refresh: nobody waits for it
    times.due = now.mono + kRejectionKept;
    return false;
  }
  if (!unclear_since_ || now.mono - unclear_at_ > kUnclearKept) {
    unclear_since_ = now.mono;
    unclear_decided_ = false;
  }
  unclear_at_ = now.mono;
  if (!times.unclear_since) {
    times.unclear_since = now.mono;
  }
  if (now.mono - *unclear_since_ < kUnclearWait || now.mono - *times.unclear_since < kUnclearEach) {
    return false;
  }
  times.unclear_since.reset();
  unclear_decided_ = true;
  return true;
}

bool SchemaLookUps::AnyUnclear() const {
  for (SchemaTable::Ref ref = 1; ref <= times_.size(); ++ref) {
    const Times& times = times_[ref - 1];
    const SchemaTable::Entry& entry = table_.entry(ref);
    if (times.unclear_since && times.made_in == entry.made_in && entry.wanted) {
      return true;
    }
  }
  return false;
}

void SchemaLookUps::ForgetUnclear() {
  for (Times& times : times_) {
    times.unclear_since.reset();
  }
  unclear_since_.reset();
  unclear_decided_ = false;
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
  backoff_.Reset();
  ask_at_ = now.mono;
}

std::optional<base::MonotonicTime> SchemaLookUps::NextDeadline() const {
  return asking_ || table_.wanted() == 0 ? std::nullopt : std::optional(ask_at_);
}

}  // namespace walpost::pipeline
