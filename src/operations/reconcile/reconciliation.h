// Reconciliation - rows of outbox tables beside the records of topics and the dead letters about
// them, by id.
// Why: only both together show whether every event is in Kafka. Whoever closes a gap sends what is
//   missing; an audit reports it.
// Thread: one owner; blocking.
// Use: Add all rows, Look, then Judge once.
// Units/limits: on disk some 200 bytes for each row and record, and as many again for each row of a
//   compacted topic when superseded rows are to be reported; in memory one part in
//   DiskBuckets::kBuckets of them at a time, by their id or key; of one id a thousand rows, whose
//   other rows are unknown then.
// Errors: those of reading, and DiskBuckets's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/source_facts.h"
#include "envelope/control_records.h"
#include "kafka/progress.h"
#include "kafka/topic_look_up.h"
#include "operations/deadletters/dlq.h"
#include "operations/reconcile/settled_rows.h"
#include "operations/rows/row_reader.h"
#include "operations/rows/row_sender.h"

namespace walpost::operations {

namespace entries {
struct Entry;
struct OfOneId;
struct OfOneText;
}  // namespace entries

// What walpost.dead_letters says of an event.
enum class DeadLetterFate : std::uint8_t {
  kNone,
  kDeadLettered,
  kParked,
  kSentElsewhere,
  kDiscarded
};

struct ReconciledRow {
  std::uint64_t number = 0;  // what the caller calls it
  std::string_view id;
  std::uint32_t topic = 0;      // an index of Reconciliation::topics()
  std::int64_t at_ms = 0;       // its record is not older
  std::int32_t partition = -1;  // by kafka::TopicGaps::PartitionOf
  std::int64_t bytes = 0;       // as kafka::BatchBytesOf its record
  bool undeliverable = false;   // it makes no record
};

struct Reconciled {
  ReconciledRow row;
  bool in_topic = false;
  // A record with its id is, or a dead letter, which may be about another row.
  bool id_unproven = false;
  bool too_large = false;  // for its topic
  // Not in its topic, which is compacted, but a later row of its key is: sent now, it would come
  // behind that one. Only Judge `in_order` reports it, as the next one.
  bool superseded = false;
  // Not in its topic, which is compacted, but a record of its key is that may be newer: about none
  // of the rows (another table's, a message, another pipeline's), or about one with no order to
  // this one.
  bool order_unproven = false;
  // Nothing of its key is in its topic, which is compacted, and it is so old that what deleted the
  // key may have gone, too.
  bool deletion_unproven = false;
  DeadLetterFate fate = DeadLetterFate::kNone;
};

// A record is no older than its row by a clock that both go by. Where walpost's clock is behind, or
// a row's time is that of another time zone, rows seem younger than they are: by as much as those
// that are in the topic do, whichever table they are of. The oldest of these may be few.
class ClockComparison {
 public:
  // What clocks may differ by where nothing shows it.
  static constexpr std::int64_t kUnknownMs = 3'600'000;
  // A row's created_at is believed when it is at most a day ahead of the clock (RowReader), as one
  // of another time zone is. So its record may be older by that, and by what clocks differ.
  static constexpr std::int64_t kMostMs = 24 * std::int64_t{3'600'000} + kUnknownMs;

  // Of an event that is in the topic. A row without a time (0), or one that is further ahead, shows
  // nothing. Nor does one that is more than kUnknownMs older than its record, which came late.
  void Add(std::int64_t row_ms, std::int64_t record_ms, std::string_view id);

  // Nothing: no event showed it.
  const std::optional<std::int64_t>& ahead_ms() const { return ahead_ms_; }

  std::int64_t allowed_ms() const { return ahead_ms_.value_or(kUnknownMs); }

  // Of the event that is furthest ahead; empty = none is.
  const std::string& id() const { return id_; }

 private:
  std::optional<std::int64_t> ahead_ms_;
  std::string id_;
};

struct ReconciledTopic {
  std::string name;
  std::optional<kafka::Unseen> unseen;  // why none of its records are
  std::uint64_t records = 0;
  std::uint64_t without_id = 0;
  std::uint64_t without_position = 0;  // and no redelivery
  std::uint64_t redelivered = 0;
  // At positions that this server's log has not come to: it was set back.
  std::uint64_t beyond_log = 0;
  std::int64_t oldest_row_ms = INT64_MAX;  // by PostgreSQL's clock
  // What deleted a key before may have gone, with an hour for clocks that differ; up to when a time
  // of a row is not ahead of all clocks.
  std::int64_t deletions_since_ms = 0;
  std::int64_t deletions_until_ms = 0;
  kafka::TopicGaps gaps;
  ClockComparison clocks;
};

// Those of `names` that are not seen, as a pipeline's events would have to wait for them.
absl::StatusOr<kafka::UnseenTopics> FindUnseen(const PipelineSettings& pipeline,
                                               std::vector<std::string> names);

class Reconciliation {
 public:
  // `folder`: of the temporary files.
  static absl::StatusOr<Reconciliation> Create(const std::string& folder, SharedIds shared);

  // `number`: what the caller calls it. `source`: its table, as dead letters name it.
  absl::Status Add(const ReadRow& row, std::uint64_t number, std::string_view source);

  struct Where {
    // Read each topic from its oldest row on, less an hour for clocks that differ, and not as a
    // whole.
    bool from_oldest_row = false;
    bool dead_letters = true;
  };

  // Every topic that a row was meant for, the pipeline's dead letters, and which history the source
  // has: a record of this cluster that its history cannot have is about another row, whatever its
  // id.
  absl::Status Look(const PipelineSettings& pipeline, const Where& where);

  // Before Judge: fills in ReconciledTopic::clocks, by which a row's time is compared with those of
  // records, and with what the topic still shows of deletions.
  absl::Status CompareClocks();

  using OnReconciled = std::function<absl::Status(const Reconciled&)>;

  // Each row once, in no order. `in_order`: they were read in their order, which shows what is
  // superseded.
  absl::Status Judge(const OnReconciled& on_row, bool in_order = false);

  const std::vector<ReconciledTopic>& topics() const { return topics_; }

  // After Judge: of a table whose ids may repeat, when a topic shows that the server was set back.
  // A record of before may have the id and the position of a row of now. Empty = nothing shows it.
  std::string RepeatedIdsText(std::string_view source) const;

  struct Order {
    std::uint64_t repeated_ids = 0;
    std::uint64_t repeats = 0;       // records of the stream beside the first of an id in a topic
    std::uint64_t unknown_ids = 0;   // in the topics, of no row
    std::uint64_t out_of_order = 0;  // first records of events behind a later event of their key
    std::vector<std::string> examples;  // of those, ids
  };

  // After Judge.
  const Order& order() const { return order_; }

 private:
  Reconciliation(std::string folder, SharedIds shared, DiskBuckets ids, DiskBuckets keys)
      : folder_(std::move(folder)),
        shared_(std::move(shared)),
        ids_(std::move(ids)),
        keys_(std::move(keys)) {}

  std::uint32_t TopicOf(std::string_view name);
  std::uint32_t SourceOf(std::string_view name);
  absl::Status Scan(std::uint32_t topic, const PipelineSettings& pipeline, bool from_oldest_row);
  // No such table: none.
  absl::Status DeadLetters(const PipelineSettings& pipeline);
  absl::Status Record(std::uint32_t topic, const kafka::ScannedRecord& record);
  absl::Status ReadHistory(const PipelineSettings& pipeline);
  bool MayBeOfHistory(const envelope::Position& position) const;
  bool IsBeyondLog(const envelope::Position& position) const;
  absl::Status FindLate();
  void FindRecords(entries::OfOneId* event) const;
  absl::Status KeepForeign(const entries::OfOneId& event);
  absl::Status KeepMissing(const entries::Entry& row, std::string_view id);
  absl::Status KeepThere(const entries::Entry& entry, std::int32_t partition);
  absl::Status KeepRow(const entries::Entry& row, const entries::OfOneId& event);
  absl::Status CheckBucket(std::size_t bucket, const OnReconciled& on_row);
  absl::Status AddRecord(const entries::Entry& record, entries::OfOneText* text);
  absl::Status ReportUnknown(entries::Entry row, std::string_view id, const OnReconciled& on_row);
  absl::Status Report(const entries::Entry& row, std::string_view id, const entries::OfOneId& event,
                      const OnReconciled& on_row);
  absl::Status CheckCompacted(std::size_t bucket, const OnReconciled& on_row);
  void CountRecords(const std::string& id, const entries::OfOneId& event);
  Reconciled ComparedOf(const entries::Entry& row, std::string_view id) const;

  std::string folder_;
  SharedIds shared_;
  base::SourceFacts history_;
  DiskBuckets ids_;
  DiskBuckets keys_;  // records of the stream, with what they hold to be first
  std::optional<DiskBuckets>
      compacted_;  // rows of compacted topics by their key, when one is asked for
  std::vector<ReconciledTopic> topics_;
  std::map<std::string, std::uint32_t, std::less<>> topic_numbers_;
  std::map<std::string, std::uint32_t, std::less<>> source_numbers_;
  Order order_;
};

}  // namespace walpost::operations
