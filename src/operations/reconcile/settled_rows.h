// FindSettledRows - which rows must not be sent again: their events are in Kafka, are dead letters,
// or are older than what Kafka holds of their key in a compacted topic.
// Thread: blocking.
// Errors: those of Reconciliation.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kafka/topic_look_up.h"
#include "operations/outcome.h"
#include "operations/rows/row_reader.h"
#include "operations/rows/row_sender.h"

namespace walpost::operations {

// DiskBuckets - entries in temporary files. Those with the same key are in the same file, so they
// are read together, however many there are.
// Why: a topic and a table are compared by id, and neither fits into memory.
// Thread: one owner; blocking.
// Units/limits: some 16 bytes an entry beside key and data, on disk; in memory 16 KiB for each of
//   kBuckets files. Keys and data up to 64 KiB. Entries of one key keep their order.
// Errors: kResourceExhausted or kUnavailable, naming the folder.
class DiskBuckets {
 public:
  static constexpr std::size_t kBuckets = 128;
  static constexpr std::size_t kKeyBytesMax = 60'000;  // of a record's key, to distinguish it

  // Files without a name: nothing is left of them, whatever ends the process. An empty `folder` is
  // $TMPDIR, or /tmp.
  static absl::StatusOr<DiskBuckets> Create(const std::string& folder);

  absl::Status Add(std::string_view key, std::string_view data);

  using OnEntry = std::function<absl::Status(std::string_view key, std::string_view data)>;

  // What was added with the keys of this bucket, in order; views until the callback returns.
  absl::Status ForEach(std::size_t bucket, const OnEntry& on_entry);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  DiskBuckets() = default;
  absl::Status Failed(const char* what) const;

  std::string folder_;
  std::array<std::unique_ptr<std::FILE, Close>, kBuckets> files_;
};

struct SettledRowsOptions {
  std::string temp_folder;
  bool from_oldest_row = false;  // see Reconciliation::Where
  bool dead_letters = true;      // rows in walpost.dead_letters count as settled, too
  SharedIds shared_ids;
  OnProgress on_progress;
};

struct SettledRows {
  std::vector<bool> settled;  // by the row's number; the other rows are missing
  std::uint64_t in_topic = 0;
  std::uint64_t dead_letters = 0;  // open, discarded or sent elsewhere, and not in the topic
  // Not in the topic, which is compacted, but a later row of the key is.
  std::uint64_t superseded = 0;
  // Missing, as far as is known: see what is unproven of Reconciled.
  std::uint64_t unproven = 0;
  // Missing rows of compacted topics. The topic may hold a later row of the key that `reader` did
  // not read.
  std::uint64_t missing_of_compacted = 0;
  // Why it is not known of some rows that they are missing, and what sends them all the same; empty
  // = it is.
  std::string doubt;

  kafka::UnseenTopics unseen_topics;
  std::string warning;  // about what this cannot know; empty = none

  // For the end of a line that counts rows; empty = none.
  std::string SupersededText() const;
  std::string UnprovenText() const;
};

// Of what kafka::UnknownCompactionText says: what sends it all the same.
std::string CompactionDoubt(const std::string& unknown);

// `reader` is open for reading twice; a row that it reads later is newer. `source`: its table, by
// the name that dead letters have for it.
absl::StatusOr<SettledRows> FindSettledRows(const PipelineSettings& pipeline,
                                            const SettledRowsOptions& options,
                                            std::string_view source, RowReader* reader);

// SharedKeys - keys that rows of several tables have in one topic.
// Why: the stream brings the events of a key as they were committed, whatever table they come from.
//   Verbs send table by table, as no column puts rows of two tables in an order.
// Thread: one owner; blocking.
// Units/limits: on disk the key and the topic of each row; in memory one part in
// DiskBuckets::kBuckets.
// Errors: those of reading, and DiskBuckets's.
struct RowsToSend {
  std::string table;
  RowReader* reader = nullptr;                 // opened kTwice
  const std::vector<bool>* settled = nullptr;  // rows that are not sent, by their number
};

// One key of which several tables have rows to send to one topic, in words; empty = there is none.
// `temp_folder`: of DiskBuckets.
absl::StatusOr<std::string> SharedKeysText(const std::vector<RowsToSend>& tables,
                                           const std::string& temp_folder);

}  // namespace walpost::operations
