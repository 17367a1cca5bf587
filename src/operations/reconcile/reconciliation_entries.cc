#include "operations/reconcile/reconciliation_entries.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/dead_letter.h"
#include "base/status.h"
#include "operations/reconcile/reconciliation.h"

namespace walpost::operations {

namespace entries {
std::array<std::uint64_t, 2> DestinationOf(std::string_view topic,
                                           const std::optional<std::string_view>& key) {
  const base::WideHash destination =
      base::ParkedKeyIdOf(postgres::Text(topic, base::DeadLetter::kTextBytesMax, /*ascii=*/false),
                          key.value_or(std::string_view()));
  // No key is another one than an empty one.
  return {destination.first + (key ? 1 : 0), destination.second};
}

bool OfOneText::AddRow(const Entry& row) {
  if (rows == Records::kKindsMax) {
    too_many_rows = true;
    return false;
  }
  ++rows;
  ids[row.whole_id].rows.push_back(row);
  return true;
}

OfOneId* OfOneText::IdOf(const WholeId& whole) {
  const auto found = ids.find(whole);
  if (found != ids.end()) {
    return &found->second;
  }
  return ids.size() < Records::kKindsMax ? &ids[whole] : nullptr;
}

// The same one may come twice, as it was at two times.
void OfOneText::AddDeadLetter(const Entry& dead_letter) {
  const auto destination = std::pair(dead_letter.source, dead_letter.destination);
  const auto known = dead_letters.find(destination);
  const bool seen =
      known != dead_letters.end() && known->second.positions.contains(dead_letter.position);
  if (!seen && positions == Records::kKindsMax) {
    too_many = true;
    return;
  }
  DeadLettersAt& there = dead_letters[destination];
  positions += there.positions.insert(dead_letter.position).second ? 1 : 0;
  if (dead_letter.number >= there.newest) {
    there.newest = dead_letter.number;
    there.fate = dead_letter.fate;
  }
}

void OfOneText::FindFates() {
  if (too_many_rows) {
    for (auto& [whole, id] : ids) {
      for (Entry& row : id.rows) {
        row.in_topic = false;
        row.unproven = true;
      }
    }
    return;
  }
  if (dead_letters.empty()) {
    return;
  }
  std::map<std::pair<std::uint32_t, std::array<std::uint64_t, 2>>, std::size_t> rows_at;
  for (const auto& [whole, id] : ids) {
    for (const Entry& row : id.rows) {
      ++rows_at[{row.source, row.destination}];
    }
  }
  std::set<std::uint32_t> of_no_row;  // tables
  for (const auto& [destination, there] : dead_letters) {
    const auto there_are = rows_at.find(destination);
    if (there_are == rows_at.end() || there.positions.size() > there_are->second) {
      of_no_row.insert(destination.first);
    }
  }
  for (auto& [whole, id] : ids) {
    for (Entry& row : id.rows) {
      const auto there = dead_letters.find({row.source, row.destination});
      const bool any = there != dead_letters.end();
      if (any && !too_many && there->second.positions.size() >= rows_at[there->first]) {
        row.fate = there->second.fate;
      } else if (any || too_many || of_no_row.contains(row.source)) {
        row.unproven = !row.in_topic;
      }
    }
  }
}
}  // namespace entries

using entries::BytesOf;
using entries::Entry;
using entries::IsTooLarge;
using entries::Kind;
using entries::ReadBytes;
using envelope::Position;
using kafka::Compaction;

namespace {

constexpr std::int32_t kAnyPartition = -1;  // where a row may have gone to any

// What compaction takes for the same.
std::string CompactedKeyOf(const Entry& entry, std::int32_t partition) {
  return std::string(BytesOf(entry.topic)).append(BytesOf(partition)).append(BytesOf(entry.key));
}

}  // namespace

bool entries::IsTooLarge(const Entry& row, const ReconciledTopic& topic) {
  return topic.gaps.message_bytes_max && row.bytes > *topic.gaps.message_bytes_max;
}

std::int32_t entries::PartitionOf(const Entry& row, const ReconciledTopic& topic) {
  return topic.gaps.PartitionOf(row.partition,
                                row.has_key ? std::optional(row.key_hash) : std::nullopt);
}

Reconciled Reconciliation::ComparedOf(const Entry& row, std::string_view id) const {
  const ReconciledTopic& topic = topics_[row.topic];
  Reconciled reconciled;
  const std::int32_t partition = PartitionOf(row, topic);
  reconciled.row = {row.number, id, row.topic, row.at_ms, partition, row.bytes, row.undeliverable};
  reconciled.in_topic = row.in_topic;
  reconciled.id_unproven = row.unproven;
  reconciled.too_large = IsTooLarge(row, topic);
  reconciled.fate = row.fate;
  return reconciled;
}

void ClockComparison::Add(std::int64_t row_ms, std::int64_t record_ms, std::string_view id) {
  const std::int64_t ahead_ms = row_ms - std::max(record_ms, std::int64_t{0});
  if (row_ms <= 0 || ahead_ms > kMostMs || ahead_ms < -kUnknownMs) {
    return;
  }
  if (ahead_ms > ahead_ms_.value_or(0)) {
    id_ = std::string(id);
  }
  ahead_ms_ = std::max({ahead_ms, ahead_ms_.value_or(0), std::int64_t{0}});
}

// An id that comes again shows nothing, since its record may be another row's: but for the same
// event that was sent twice. Nor does a row that became no record, so the one with its id is none
// of it.
absl::Status Reconciliation::CompareClocks() {
  if (std::none_of(topics_.begin(), topics_.end(), [](const ReconciledTopic& topic) {
        return topic.gaps.begins_ms || topic.gaps.tombstone_retention;
      })) {
    return absl::OkStatus();  // nobody asks
  }
  for (std::size_t bucket = 0; bucket < DiskBuckets::kBuckets; ++bucket) {
    struct Seen {
      std::uint32_t events = 0;
      Entry first;
    };

    struct Event {
      Seen row;
      Seen record;  // the first of one event
      bool dead_letter = false;
    };

    std::map<std::string, Event, std::less<>> events;
    RETURN_IF_ERROR(ids_.ForEach(bucket, [&](std::string_view id, std::string_view data) {
      const auto entry = ReadBytes<Entry>(data);
      const bool record = entry.kind == Kind::kRecord;
      if (entry.kind == Kind::kLate || entry.redelivered ||
          (record && !MayBeOfHistory(entry.position))) {
        return absl::OkStatus();
      }
      Event& event = events[std::string(id)];
      if (entry.kind == Kind::kDeadLetter) {
        event.dead_letter = true;
        return absl::OkStatus();
      }
      Seen& seen = entry.kind == Kind::kRow ? event.row : event.record;
      const bool again = record && seen.events == 1 && entry.position != Position() &&
                         entry.position == seen.first.position && entry.topic == seen.first.topic &&
                         entry.key == seen.first.key;
      if (!again) {
        ++seen.events;
        seen.first = entry;
      } else {
        seen.first.at_ms = std::min(seen.first.at_ms, entry.at_ms);
      }
      return absl::OkStatus();
    }));
    for (const auto& [id, event] : events) {
      const Entry& row = event.row.first;
      const Entry& record = event.record.first;
      if (event.row.events == 1 && event.record.events == 1 && !event.dead_letter &&
          !row.shared_id && !row.undeliverable && !IsTooLarge(row, topics_[row.topic]) &&
          row.topic == record.topic && row.key == record.key && row.whole_id == record.whole_id) {
        topics_[row.topic].clocks.Add(row.at_ms, record.at_ms, id);
      }
    }
  }
  return absl::OkStatus();
}

// Records of compacted topics that are about none of the rows.
absl::Status Reconciliation::KeepForeign(const entries::OfOneId& event) {
  for (const auto& [kind, records] : event.records) {
    const Entry& record = records.first;
    const bool about_a_row =
        std::any_of(event.rows.begin(), event.rows.end(),
                    [&](const Entry& row) { return row.topic == record.topic && row.in_topic; });
    if (about_a_row || !record.has_key ||
        topics_[record.topic].gaps.compaction != Compaction::kYes) {
      continue;
    }
    RETURN_IF_ERROR(KeepThere(record, record.partition));
  }
  return absl::OkStatus();
}

absl::Status Reconciliation::KeepMissing(const Entry& row, std::string_view id) {
  return compacted_->Add(CompactedKeyOf(row, PartitionOf(row, topics_[row.topic])),
                         std::string(BytesOf(row)).append(id));
}

// For rows that are not there: of the same partition, or of any.
absl::Status Reconciliation::KeepThere(const Entry& entry, std::int32_t partition) {
  for (const std::int32_t each : {kAnyPartition, partition}) {
    RETURN_IF_ERROR(compacted_->Add(CompactedKeyOf(entry, each), BytesOf(entry)));
  }
  return absl::OkStatus();
}

// In each partition that has a record of it.
absl::Status Reconciliation::KeepRow(const Entry& row, const entries::OfOneId& event) {
  for (const auto& [kind, records] : event.records) {
    if (records.first.topic == row.topic) {
      RETURN_IF_ERROR(KeepThere(row, records.first.partition));
    }
  }
  return absl::OkStatus();
}

// Compaction leaves of a key what came last. So a row before one that is there was there, too, or
// may no longer come. Between a row and what is about none of them there is no order to go by, nor
// where the table has none. Of a key that has no record, what came last may have been without a
// value, which goes after a time.
absl::Status Reconciliation::CheckCompacted(std::size_t bucket, const OnReconciled& on_row) {
  struct OfKey {
    std::optional<std::uint64_t> newest;  // the order of the last row that is there
    bool has_others = false;  // records about none of the rows, or about rows without an order
  };

  std::map<std::string, OfKey, std::less<>> keys;  // those with records
  RETURN_IF_ERROR(compacted_->ForEach(bucket, [&](std::string_view key, std::string_view data) {
    const auto entry = ReadBytes<Entry>(data);
    if (entry.kind == Kind::kRow && !entry.in_topic) {
      return absl::OkStatus();
    }
    OfKey& records = keys[std::string(key)];
    if (entry.has_order) {
      records.newest = std::max(records.newest.value_or(0), entry.order);
    } else {
      records.has_others = true;
    }
    return absl::OkStatus();
  }));
  return compacted_->ForEach(bucket, [&](std::string_view key, std::string_view data) {
    const auto row = ReadBytes<Entry>(data);
    if (row.kind == Kind::kRecord || row.in_topic) {
      return absl::OkStatus();
    }
    Reconciled reconciled = ComparedOf(row, data.substr(sizeof(Entry)));
    const auto found = keys.find(key);
    if (found == keys.end()) {
      const ReconciledTopic& topic = topics_[row.topic];
      const std::optional<std::int64_t>& ahead_ms = topic.clocks.ahead_ms();
      reconciled.deletion_unproven =
          topic.gaps.tombstone_retention &&
          (!ahead_ms || row.at_ms - *ahead_ms < topic.deletions_since_ms ||
           row.at_ms > topic.deletions_until_ms);
    } else {
      const auto& [newest, has_others] = found->second;
      reconciled.superseded = row.has_order && newest && row.order < *newest;
      const bool is_newer = row.has_order && !has_others && row.order > *newest;
      // Not by their times either, which writers may choose.
      reconciled.order_unproven = !reconciled.superseded && !is_newer;
    }
    return on_row(reconciled);
  });
}

}  // namespace walpost::operations
