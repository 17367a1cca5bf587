// SharedKeys - keys that rows of several tables have in one topic.
// Why: the stream brings the events of a key as they were committed, whatever table they come from. Verbs
//   send table by table, as no column puts rows of two tables in an order.
// Thread: one owner; blocking.
// Units/limits: on disk the key and the topic of each row; in memory one part in DiskBuckets::kBuckets.
// Errors: those of reading, and DiskBuckets's.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operations/rows/row_reader.h"

namespace walpost::operations {

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
