// The START_REPLICATION command and the timeline history file: the two replication texts we write
// and read.
// Thread: any; pure.
// Source: PostgreSQL manual, "Streaming Replication Protocol", "Logical Streaming Replication
//   Parameters".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "base/source_facts.h"

namespace walpost::postgres {

struct StartOptions {
  std::string slot;
  std::string publication;
  base::Lsn start_lsn;
  int server_version = 0;
  bool messages = false;
  bool text_values = false;
};

// An option the server does not know is an error, so they follow from its version: `binary` and
// `messages` exist from 14; before, values are text. proto_version 1 serves on every version while streaming is off.
std::string StartReplicationCommand(const StartOptions& options);

// Lines of "<timeline> TAB <end LSN> TAB <reason>"; '#' starts a comment. kDataLoss otherwise.
absl::StatusOr<std::vector<base::TimelineEnd>> ParseTimelineHistory(std::string_view content);

}  // namespace walpost::postgres
