// Audit - whether outbox tables and topics agree, event by event, for `walpost audit`.
// Why: "nothing is missing" is to be seen, not believed: every night, of yesterday, beside the live
//   stream or on a standby.
// Thread: blocking.
// Units/limits: reads each row and each record once; on disk it takes some 200 bytes for each, and in
//   memory it holds one part in 128 of them at a time.
// Errors: in Outcome: 65 when an event is missing or out of order, else 75 when some are unknown, or the
//   standby lags, else as everywhere.
// Source: docs/database.md, "Is anything missing?".
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "operations/outcome.h"
#include "operations/pipeline_settings.h"
#include "operations/reconcile/reconciliation.h"
#include "operations/rows/row_filter.h"

namespace walpost::operations {

struct AuditOptions {
  PipelineSettings pipeline;
  RowFilter filter;
  std::string standby;  // conninfo; empty = the primary
  std::string temp_folder;
  std::string report;  // file for a line of JSON about each event that is not in its topic
  bool json = false;
  bool has_messages = false;  // the pipeline also streams messages
  bool skips = false;         // the pipeline leaves out what can be no record
  std::chrono::milliseconds wait{
      60'000};  // for the standby, then for the slot to confirm what was read
  OnProgress on_progress;
};

Outcome Audit(const AuditOptions& options);

enum class Finding {
  kOk,
  kMissing,
  kNotConfirmed,  // from here on: unknown
  kTopicBeginsLater,
  kTopicCompacted,
  kRecordsWithoutId,
  kIdsShared,
  kCompactionUnknown,
  kDeadLettered,  // from here on: not in the topic, and it is known why
  kParked,
  kDiscarded,
  kSentElsewhere,
  kUndeliverable,
};

// `confirmed`: everything that was read is confirmed.
Finding FindingOn(const Reconciled& reconciled, const ReconciledTopic& topic, bool confirmed);

}  // namespace walpost::operations
