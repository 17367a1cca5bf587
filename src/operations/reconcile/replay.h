// Replay - sends rows of the outbox tables once more, for `walpost replay`.
// Why: a consumer that lost its state, or a new one, needs what was sent before Kafka forgot it;
//   and what was left out, by whatever hand, is to be sent after all. The rows are still there.
// Thread: blocking. Rules: with `missing` it first waits for transactions that are open, and in the
//   end names those that still are; then it counts; then it waits until the slot has confirmed all
//   that the rows' snapshot sees, so that no event comes before its first time; then it sends in
//   the order of `seq`, each record marked `walpost-redelivery: replay`. To the events' own topics
//   only on request: there, old values follow newer ones.
// Errors: in Outcome. 64 when nothing says where to; 75 when the standby lags; a row that cannot be
//   sent is named, and none behind it was sent.
// Source: docs/database.md, "Send events again".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "operations/outcome.h"
#include "operations/reconcile/audit.h"
#include "operations/rows/row_reader.h"

namespace walpost::operations {

struct ReplayOptions {
  PipelineSettings pipeline;
  RowFilter filter;
  std::string to_topic;
  bool in_place = false;
  bool dry_run = false;
  bool skip_undeliverable = false;  // leave out rows that can be no records, and name them
  bool send_unproven = false;       // also rows of which it is not known whether Kafka has them
  bool all = false;                 // without a filter
  bool missing = false;             // of them only those in neither Kafka nor a dead letter
  std::uint64_t rate = 0;           // events a second; 0 = as fast as Kafka takes them
  std::string standby;              // conninfo; empty = the primary
  std::string temp_folder;
  std::chrono::milliseconds wait{60'000};  // for the standby, then for the slot
  std::chrono::milliseconds patience{60'000};
  OnProgress on_progress;
  OnWarning on_warning;
};

Outcome Replay(const ReplayOptions& options);

}  // namespace walpost::operations
