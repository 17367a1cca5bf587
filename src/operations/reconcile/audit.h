// Audit - whether outbox tables and topics agree, event by event, for `walpost audit`.
// Why: "nothing is missing" is to be seen, not believed: every night, of yesterday, beside the live
//   stream or on a standby.
// Thread: blocking.
// Units/limits: reads each row and each record once; on disk it takes some 200 bytes for each, and
//   in memory it holds one part in 128 of them at a time.
// Errors: in Outcome: 65 when an event is missing or out of order, else 75 when some are unknown,
//   or the standby lags, else as everywhere.
// Source: docs/database.md, "Is anything missing?".
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "operations/outcome.h"
#include "operations/reconcile/reconciliation.h"
#include "operations/rows/row_reader.h"

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

// AuditReport - what `walpost audit` found, as text and as JSON.
// Thread: values.
struct AuditReport {
  static constexpr std::size_t kFindings = static_cast<std::size_t>(Finding::kUndeliverable) + 1;
  static constexpr std::size_t kExamplesMax = 20;

  std::string pipeline;
  std::vector<std::string> tables;
  std::uint64_t rows = 0;
  std::array<std::uint64_t, kFindings> counts = {};
  std::vector<std::string> missing;  // the first
  std::vector<ReconciledTopic> topics;
  Reconciliation::Order order;
  std::vector<std::string> notes;  // what limits it

  void Count(const Reconciled& reconciled, Finding finding);

  std::uint64_t operator[](Finding finding) const {
    return counts[static_cast<std::size_t>(finding)];
  }

  std::uint64_t Unknown() const;
  int ExitCode() const;
  std::string Text() const;
  std::string Json() const;
};

// As in the JSON and in the file of --report.
std::string_view NameOf(Finding finding);

}  // namespace walpost::operations
