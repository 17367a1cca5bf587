// FindPresence - which rows need not be sent, because Kafka holds them, or because they are dead
// letters; or must not be, because Kafka holds a newer one and compaction may have removed them.
// Thread: blocking.
// Errors: those of Reconciliation.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "operations/dlq.h"
#include "operations/outcome.h"
#include "operations/row_reader.h"

namespace walpost::operations {

struct PresenceOptions {
  std::string temp_folder;
  bool from_oldest_row = false;  // see Reconciliation::Where
  bool dead_letters = true;      // what walpost.dead_letters knows of counts, too
  OnProgress on_progress;
};

struct Presence {
  std::vector<bool> there;  // by the row's number
  std::uint64_t in_topic = 0;
  std::uint64_t dead_letters = 0;  // open, discarded or sent elsewhere, and not in the topic
  std::uint64_t superseded =
      0;  // not in the topic, which is compacted, but a later row of the key is
  // Not there. Of these a later row may be in the topic that the reader was not asked for.
  std::uint64_t missing_of_compacted = 0;

  std::set<std::string> unknown_topics;
  std::string warning;  // about what this cannot know; empty = none

  // To go on an account with; empty = none.
  std::string SupersededText() const;
};

// `reader` is open for reading twice; a row that it reads later is newer. `source`: its table, as dead
// letters name it.
absl::StatusOr<Presence> FindPresence(const DlqOptions& pipeline, const PresenceOptions& options,
                                      std::string_view source, RowReader* reader);

}  // namespace walpost::operations
