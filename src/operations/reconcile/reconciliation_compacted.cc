#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "operations/reconcile/reconciliation.h"
#include "operations/reconcile/reconciliation_entries.h"

namespace walpost::operations {

using entries::BytesOf;
using entries::Entry;
using entries::Kind;
using entries::ReadBytes;
using kafka::Compaction;

namespace {

constexpr std::int32_t kAnyPartition = -1;  // where a row may have gone to any

// What compaction takes for the same.
std::string CompactedKeyOf(const Entry& entry, std::int32_t partition) {
  return std::string(BytesOf(entry.topic)).append(BytesOf(partition)).append(BytesOf(entry.key));
}

}  // namespace

std::int32_t entries::PartitionOf(const Entry& row, const ReconciledTopic& topic) {
  return topic.gaps.PartitionOf(row.partition,
                                row.has_key ? std::optional(row.key_hash) : std::nullopt);
}

Reconciled entries::ComparedOf(const Entry& row, std::string_view id,
                               const ReconciledTopic& topic) {
  Reconciled reconciled;
  const std::int32_t partition = PartitionOf(row, topic);
  reconciled.row = {row.number, id, row.topic, row.at_ms, partition, row.bytes, row.undeliverable};
  reconciled.in_topic = row.in_topic;
  reconciled.id_unproven = row.unproven;
  reconciled.too_large = topic.gaps.message_bytes_max && row.bytes > *topic.gaps.message_bytes_max;
  reconciled.fate = row.fate;
  return reconciled;
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
// may no longer come. Between a row and what is about none of them there is no order to go by, nor where the
// table has none. Of a key that has no record, what came last may have been without a value, which goes
// after a time.
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
    Reconciled reconciled = ComparedOf(row, data.substr(sizeof(Entry)), topics_[row.topic]);
    const auto found = keys.find(key);
    if (found == keys.end()) {
      reconciled.deletion_unproven = row.at_ms < topics_[row.topic].deletions_since_ms;
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
