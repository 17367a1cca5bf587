// FindSettledRows - which rows must not be sent again: their events are in Kafka, are dead letters, or
// are older than what Kafka holds of their key in a compacted topic.
// Thread: blocking.
// Errors: those of Reconciliation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kafka/topic_look_up.h"
#include "operations/outcome.h"
#include "operations/pipeline_settings.h"
#include "operations/rows/row_reader.h"
#include "operations/rows/shared_ids.h"

namespace walpost::operations {

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
  // Missing rows of compacted topics. The topic may hold a later row of the key that `reader` did not
  // read.
  std::uint64_t missing_of_compacted = 0;
  // Why it is not known of some rows that they are missing, and what sends them all the same; empty = it is.
  std::string doubt;

  kafka::UnseenTopics unseen_topics;
  std::string warning;  // about what this cannot know; empty = none

  // For the end of a line that counts rows; empty = none.
  std::string SupersededText() const;
  std::string UnprovenText() const;
};

// Of what kafka::UnknownCompactionText says: what sends it all the same.
std::string CompactionDoubt(const std::string& unknown);

// `reader` is open for reading twice; a row that it reads later is newer. `source`: its table, by the
// name that dead letters have for it.
absl::StatusOr<SettledRows> FindSettledRows(const PipelineSettings& pipeline,
                                            const SettledRowsOptions& options,
                                            std::string_view source, RowReader* reader);

}  // namespace walpost::operations
