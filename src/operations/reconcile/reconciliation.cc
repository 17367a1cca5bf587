#include "operations/reconcile/reconciliation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"
#include "operations/reconcile/reconciliation_entries.h"
#include "operations/rows/row_sender.h"
#include "outbox/event_router.h"
#include "postgres/preflight.h"

namespace walpost::operations {

using entries::BytesOf;
using entries::Entry;
using entries::Kind;
using entries::OfOneId;
using entries::ReadBytes;

namespace {

using envelope::Position;
using kafka::Compaction;
using kafka::ScannedRecord;

constexpr std::size_t kExamplesMax = 20;
// Begins what stands for the id of a record without one. No id of a row has such a byte.
constexpr char kNoId = '\0';

// What stands in Reconciliation::keys_, before the id.
struct IdRecord {
  Position position;
  std::uint32_t topic = 0;
  std::int32_t partition = 0;
  std::int64_t offset = 0;
  WholeId whole_id{};
};

template <typename Key>  // optional text
void SetKey(std::string_view topic, const Key& key, Entry* entry) {
  if (key) {
    entry->has_key = true;
    const base::ParkedKeyId id = base::ParkedKeyIdOf(topic, *key);
    entry->key = {id.first, id.second};
  }
}

// The topic and the key of a row or record.
using TopicAndKey = std::tuple<std::uint32_t, bool, std::array<std::uint64_t, 2>>;

TopicAndKey TopicAndKeyOf(const Entry& entry) { return {entry.topic, entry.has_key, entry.key}; }

// Whether a table gives records of the topic times of its own, which need not rise.
bool MayChooseTimes(const std::vector<envelope::OutboxOptions>& outboxes, std::string_view topic) {
  return std::any_of(outboxes.begin(), outboxes.end(), [&](const auto& outbox) {
    const outbox::TableOptions& table = outbox.table;
    const bool chooses =
        !table.columns.timestamp.empty() || (table.debezium && !table.debezium->timestamp.empty());
    return chooses && outbox::TopicReach(table).Holds(topic);
  });
}

DeadLetterFate FateOf(const base::DeadLetter& row) {
  if (row.closed) {
    return row.discard() ? DeadLetterFate::kDiscarded : DeadLetterFate::kSentElsewhere;
  }
  return row.parked ? DeadLetterFate::kParked : DeadLetterFate::kDeadLettered;
}

}  // namespace

absl::StatusOr<Reconciliation> Reconciliation::Create(const std::string& folder, SharedIds shared) {
  ASSIGN_OR_RETURN(DiskBuckets ids, DiskBuckets::Create(folder));
  ASSIGN_OR_RETURN(DiskBuckets keys, DiskBuckets::Create(folder));
  return Reconciliation(folder, std::move(shared), std::move(ids), std::move(keys));
}

std::uint32_t Reconciliation::TopicOf(std::string_view name) {
  const auto found = topic_numbers_.find(name);
  if (found != topic_numbers_.end()) {
    return found->second;
  }
  const auto number = static_cast<std::uint32_t>(topics_.size());
  ReconciledTopic topic;
  topic.name = std::string(name);
  topics_.push_back(std::move(topic));
  topic_numbers_.emplace(name, number);
  return number;
}

std::uint32_t Reconciliation::SourceOf(std::string_view name) {
  const auto number = static_cast<std::uint32_t>(source_numbers_.size());
  const auto found = source_numbers_.find(name);
  return found != source_numbers_.end() ? found->second
                                        : source_numbers_.emplace(name, number).first->second;
}

absl::Status Reconciliation::Add(const ReadRow& row, std::uint64_t number,
                                 std::string_view source) {
  Entry entry;
  entry.number = number;
  entry.has_order = row.order.has_value();
  entry.order = row.order.value_or(0);
  entry.source = SourceOf(source);
  entry.at_ms = row.created_ms.value_or(0);
  std::string_view id = row.id;
  if (row.record.ok()) {
    const envelope::Record& record = *row.record;
    entry.topic = TopicOf(record.topic);
    entry.shared_id = shared_.In(source, record.topic);
    entry.bytes = kafka::BatchBytesOf(record);
    entry.partition = record.partition;
    SetKey(record.topic, record.key, &entry);
    entry.key_hash = record.key ? kafka::KeyHash(*record.key) : 0;
    if (record.timestamp_ms > 0) {
      entry.at_ms = std::min(entry.at_ms, record.timestamp_ms);
    }
    for (const envelope::RecordHeader& header : record.headers) {
      if (header.name == "id") {
        id = header.value;
        break;
      }
    }
  } else {
    entry.topic = TopicOf("");
    entry.undeliverable = true;
  }
  std::int64_t& oldest = topics_[entry.topic].oldest_row_ms;
  oldest = std::min(oldest, entry.at_ms);
  const Id known = IdOf(id);
  entry.whole_id = known.whole;
  entry.destination = entries::DestinationOf(row.topic, row.key);
  return ids_.Add(known.text, BytesOf(entry));
}

absl::StatusOr<kafka::UnseenTopics> FindUnseen(const PipelineSettings& pipeline,
                                               std::vector<std::string> names) {
  return kafka::FindUnseenTopics(pipeline.kafka, std::move(names), pipeline.kafka_timeout,
                                 {.hidden = pipeline.kafka.unknown_topic_wait});
}

// While this looks, an event may go from the dead letters into its topic, or become a dead letter.
// Read before the topics and after them, its row is met in either case.
absl::Status Reconciliation::Look(const PipelineSettings& pipeline, const Where& where) {
  if (where.dead_letters) {
    RETURN_IF_ERROR(DeadLetters(pipeline));
  }
  std::vector<std::string> names;
  for (const ReconciledTopic& topic : topics_) {
    if (!topic.name.empty()) {
      names.push_back(topic.name);
    }
  }
  // All at once: each one alone would take seconds.
  ASSIGN_OR_RETURN(const kafka::UnseenTopics unseen, FindUnseen(pipeline, std::move(names)));
  for (std::uint32_t topic = 0; topic < topics_.size(); ++topic) {
    if (const auto found = unseen.find(topics_[topic].name); found != unseen.end()) {
      topics_[topic].unseen = found->second;
    } else if (!topics_[topic].name.empty()) {
      RETURN_IF_ERROR(Scan(topic, pipeline, where.from_oldest_row));
    }
  }
  RETURN_IF_ERROR(ReadHistory(pipeline));
  return where.dead_letters ? DeadLetters(pipeline) : absl::OkStatus();
}

// After the topics: what is in them was in the log before.
absl::Status Reconciliation::ReadHistory(const PipelineSettings& pipeline) {
  auto read = postgres::ReadHistory(pipeline.source);
  if (const auto* end = std::get_if<postgres::StreamEnd>(&read)) {
    return end->status;
  }
  history_ = std::get<base::SourceFacts>(std::move(read));
  return absl::OkStatus();
}

// What has no position, or that of another cluster, as before pg_upgrade, may be about a row that
// is here.
bool Reconciliation::MayBeOfHistory(const Position& position) const {
  if (position.system_identifier != history_.system_identifier ||
      history_.BehindTimeline(position.timeline)) {
    return true;
  }
  // The commit record itself must be in the log, and not only what lies before it.
  return history_.MayHave(position.timeline, base::Lsn(position.commit_lsn.value() + 1)) &&
         history_.TimelineOf(position.commit_lsn) == position.timeline;
}

bool Reconciliation::IsBeyondLog(const Position& position) const {
  return position.system_identifier == history_.system_identifier &&
         position.timeline == history_.timeline && !MayBeOfHistory(position);
}

absl::Status Reconciliation::Scan(std::uint32_t topic, const PipelineSettings& pipeline,
                                  bool from_oldest_row) {
  ReconciledTopic& reconciled = topics_[topic];
  const std::int64_t begin_ms =
      from_oldest_row ? reconciled.oldest_row_ms - ClockComparison::kMostMs : 0;
  const auto gaps = kafka::ScanTopic(
      pipeline.kafka, reconciled.name, std::max<std::int64_t>(begin_ms, 0),
      [&](const ScannedRecord& record) { return Record(topic, record); }, pipeline.kafka_timeout);
  if (absl::IsNotFound(gaps.status())) {
    reconciled.unseen = kafka::Unseen::kUnknown;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(gaps.status());
  reconciled.gaps = *gaps;
  if (MayChooseTimes(pipeline.outboxes, reconciled.name)) {
    reconciled.gaps.BeginLater(INT64_MAX);
  }
  if (gaps->tombstone_retention) {
    const std::chrono::milliseconds now =
        std::chrono::duration_cast<std::chrono::milliseconds>(WallNow().time_since_epoch());
    reconciled.deletions_since_ms =
        (now - *gaps->tombstone_retention).count() + ClockComparison::kUnknownMs;
    reconciled.deletions_until_ms = now.count() + ClockComparison::kUnknownMs;
  }
  return absl::OkStatus();
}

absl::Status Reconciliation::Record(std::uint32_t topic, const ScannedRecord& record) {
  ReconciledTopic& reconciled = topics_[topic];
  ++reconciled.records;
  const Id id = IdOf(record.Header("id"));
  Entry entry;
  entry.kind = Kind::kRecord;
  entry.whole_id = id.whole;
  entry.redelivered = record.redelivered();
  entry.topic = topic;
  entry.partition = record.partition;
  entry.number = static_cast<std::uint64_t>(record.offset);
  entry.at_ms = record.timestamp_ms;
  SetKey(reconciled.name, record.key, &entry);
  if (id.text.empty()) {
    ++reconciled.without_id;
    // One for each key, since the records of one id that are held apart are few.
    return entry.has_key
               ? ids_.Add(std::string(1, kNoId).append(BytesOf(entry.key)), BytesOf(entry))
               : absl::OkStatus();
  }
  const auto position = Position::Parse(
      record.Header(entry.redelivered ? "walpost-original-position" : "walpost-position"));
  entry.position = position.value_or(Position());
  RETURN_IF_ERROR(ids_.Add(id.text, BytesOf(entry)));
  if (entry.redelivered) {
    ++reconciled.redelivered;
    return absl::OkStatus();
  }
  if (!position.ok()) {
    ++reconciled.without_position;
    return absl::OkStatus();
  }
  if (!record.key) {
    return absl::OkStatus();  // has no order
  }
  const IdRecord found{*position, topic, record.partition, record.offset, id.whole};
  return keys_.Add(record.key->substr(0, DiskBuckets::kKeyBytesMax),
                   std::string(BytesOf(found)).append(id.text));
}

absl::Status Reconciliation::DeadLetters(const PipelineSettings& pipeline) {
  ASSIGN_OR_RETURN(std::optional<postgres::DeadLetterTable> table, FindDeadLetters(pipeline));
  if (!table) {
    return absl::OkStatus();
  }
  return table->ForEach("event_id <> ''", {}, /*whole=*/false, [&](const base::DeadLetter& row) {
    Entry entry;
    entry.kind = Kind::kDeadLetter;
    entry.fate = FateOf(row);
    entry.source = SourceOf(row.source);
    entry.number = static_cast<std::uint64_t>(row.seq);
    entry.position = Position::Parse(row.position).value_or(Position());
    entry.destination = entries::DestinationOf(row.topic, row.key);
    // What was sent to its own topic is there.
    const bool delivered = row.closed && !row.discard() && row.send_to.empty();
    return row.foreign || delivered ? absl::OkStatus()
                                    : ids_.Add(IdOf(row.event_id).text, BytesOf(entry));
  });
}

absl::Status Reconciliation::Judge(const OnReconciled& on_row, bool in_order) {
  RETURN_IF_ERROR(FindLate());
  if (in_order && std::any_of(topics_.begin(), topics_.end(), [](const ReconciledTopic& topic) {
        return topic.gaps.compaction == Compaction::kYes;
      })) {
    ASSIGN_OR_RETURN(compacted_, DiskBuckets::Create(folder_));
  }
  for (std::size_t bucket = 0; bucket < DiskBuckets::kBuckets; ++bucket) {
    RETURN_IF_ERROR(CheckBucket(bucket, on_row));
  }
  for (std::size_t bucket = 0; compacted_ && bucket < DiskBuckets::kBuckets; ++bucket) {
    RETURN_IF_ERROR(CheckCompacted(bucket, on_row));
  }
  return absl::OkStatus();
}

// A record at or below a position that was seen for its key is a repeat or late: its id shows
// which.
absl::Status Reconciliation::FindLate() {
  for (std::size_t bucket = 0; bucket < DiskBuckets::kBuckets; ++bucket) {
    std::map<std::string, Position> last;  // by topic, partition and key
    const auto on_entry = [&](std::string_view key, std::string_view data) {
      const auto found = ReadBytes<IdRecord>(data);
      std::string name(BytesOf(found.topic));
      name.append(BytesOf(found.partition)).append(key);
      const auto [seen, first] = last.emplace(std::move(name), found.position);
      if (first || seen->second.system_identifier != found.position.system_identifier ||
          found.position > seen->second) {
        seen->second = found.position;
        return absl::OkStatus();
      }
      Entry entry;
      entry.kind = Kind::kLate;
      entry.topic = found.topic;
      entry.partition = found.partition;
      entry.number = static_cast<std::uint64_t>(found.offset);
      entry.whole_id = found.whole_id;
      return ids_.Add(data.substr(sizeof(IdRecord)), BytesOf(entry));
    };
    RETURN_IF_ERROR(keys_.ForEach(bucket, on_entry));
  }
  return absl::OkStatus();
}

// Of each row, by its id, topic and key: an id alone may be another pipeline's, and a writer may
// use it again. Where several rows have all of them, each needs a record of its own. What is about
// another row leaves no doubt about this one.
void Reconciliation::FindRecords(OfOneId* event) const {
  std::map<TopicAndKey, std::set<Position>> records_of;
  for (const auto& [kind, records] : event->records) {
    if (MayBeOfHistory(records.first.position)) {
      records_of[TopicAndKeyOf(records.first)].insert(records.first.position);
    }
  }
  std::map<TopicAndKey, std::size_t> rows_of;
  for (const Entry& row : event->rows) {
    ++rows_of[TopicAndKeyOf(row)];
  }
  std::set<std::uint32_t>
      foreign;  // topics with records that are about none of the rows, as far as is known
  for (const auto& [key, positions] : records_of) {
    const auto rows = rows_of.find(key);
    if (rows == rows_of.end() || positions.size() > rows->second) {
      foreign.insert(std::get<0>(key));
    }
  }
  for (Entry& row : event->rows) {
    const auto records = records_of.find(TopicAndKeyOf(row));
    const std::size_t found = records == records_of.end() ? 0 : records->second.size();
    // A walpost of before made a record of it; for which topic, its row does not say any more.
    const bool any_topic = row.undeliverable && row.whole_id != WholeId{};
    const bool own =
        any_topic ? !records_of.empty() : found > 0 && found >= rows_of[TopicAndKeyOf(row)];
    row.in_topic = own && !row.shared_id;
    row.unproven =
        !row.in_topic && (own || found > 0 || foreign.contains(row.topic) || event->too_many);
  }
}

absl::Status Reconciliation::CheckBucket(std::size_t bucket, const OnReconciled& on_row) {
  std::map<std::string, entries::OfOneText> texts;
  RETURN_IF_ERROR(ids_.ForEach(bucket, [&](std::string_view id, std::string_view data) {
    const auto entry = ReadBytes<Entry>(data);
    entries::OfOneText& text = texts[std::string(id)];
    switch (entry.kind) {
      case Kind::kRow:
        return text.AddRow(entry) ? absl::OkStatus() : ReportUnknown(entry, id, on_row);
      case Kind::kRecord:
        topics_[entry.topic].beyond_log += IsBeyondLog(entry.position) ? 1 : 0;
        return AddRecord(entry, &text);
      case Kind::kLate:
        if (OfOneId* const event = text.IdOf(entry.whole_id)) {
          event->AddLate(entry);
        }
        break;
      case Kind::kDeadLetter:
        text.AddDeadLetter(entry);
        break;
    }
    return absl::OkStatus();
  }));
  for (auto& [id, text] : texts) {
    for (auto& [whole, event] : text.ids) {
      CountRecords(id, event);
      FindRecords(&event);
    }
    text.FindFates();
    for (const auto& [whole, event] : text.ids) {
      if (compacted_) {
        RETURN_IF_ERROR(KeepForeign(event));
      }
      for (const Entry& row : event.rows) {
        RETURN_IF_ERROR(Report(row, id, event, on_row));
      }
    }
  }
  return absl::OkStatus();
}

// What is not kept may still be newer than a row of its key.
absl::Status Reconciliation::AddRecord(const Entry& record, entries::OfOneText* text) {
  OfOneId* const event = text->IdOf(record.whole_id);
  if ((event != nullptr && event->Add(record, MayBeOfHistory(record.position))) || !compacted_) {
    return absl::OkStatus();
  }
  OfOneId alone;
  alone.Add(record, false);
  return KeepForeign(alone);
}

absl::Status Reconciliation::ReportUnknown(Entry row, std::string_view id,
                                           const OnReconciled& on_row) {
  row.unproven = true;
  return Report(row, id, {}, on_row);
}

absl::Status Reconciliation::Report(const Entry& row, std::string_view id, const OfOneId& event,
                                    const OnReconciled& on_row) {
  const ReconciledTopic& topic = topics_[row.topic];
  const bool compacts = compacted_ && topic.gaps.compaction == Compaction::kYes && row.has_key;
  if (compacts && !row.in_topic) {
    return KeepMissing(row, id);
  }
  if (compacts) {
    RETURN_IF_ERROR(KeepRow(row, event));
  }
  return on_row(ComparedOf(row, id));
}

std::string Reconciliation::RepeatedIdsText(std::string_view source) const {
  for (const ReconciledTopic& topic : topics_) {
    if (topic.beyond_log > 0) {
      return absl::StrFormat(
          "this server was set back: topic '%s' has %d record(s) from beyond the end of its log. "
          "The ids of %s are no UUIDs, so new rows may have the ids of events of before and count "
          "as delivered although they are not: see docs/database.md, \"After a lost slot\"",
          topic.name, topic.beyond_log, source);
    }
  }
  return "";
}

void Reconciliation::CountRecords(const std::string& id, const OfOneId& event) {
  if (id.starts_with(kNoId)) {
    return;
  }
  if (event.rows.empty() && !event.records.empty()) {
    ++order_.unknown_ids;
  }
  std::map<std::uint32_t, std::uint64_t> streamed;  // by topic
  for (const auto& [kind, records] : event.records) {
    streamed[records.first.topic] += records.first.redelivered ? 0 : records.count;
  }
  for (const auto& [topic, count] : streamed) {
    order_.repeated_ids += count > 1 ? 1 : 0;
    order_.repeats += count > 1 ? count - 1 : 0;
  }
  for (const auto& [partition, offset] : event.late) {
    const bool repeat = std::any_of(event.records.begin(), event.records.end(),
                                    [&to = partition, at = offset](const auto& each) {
                                      const Entry& record = each.second.first;
                                      return record.topic == to.first &&
                                             record.partition == to.second && record.number < at &&
                                             !record.redelivered;
                                    });
    if (!repeat) {
      ++order_.out_of_order;
      if (order_.examples.size() < kExamplesMax) {
        order_.examples.push_back(id);
      }
    }
  }
}

}  // namespace walpost::operations
