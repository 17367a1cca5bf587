// Preflight - what must be true of the source before streaming, looked at on the replication
// connection itself.
// Why: `run` stops at the first problem, `check` shows them all; both must judge by the same code.
// Thread: any one thread; blocking.
// Errors: a problem is a StreamEnd as in replication_stream.h; its status says what, where and what
//   to type.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/source_facts.h"
#include "postgres/connect.h"
#include "postgres/connection.h"

namespace walpost::postgres {

struct PreflightStep {
  std::string name;  // server_version, identity, server, timeline, slot, slot_free, publication,
                     // tables, record
  std::optional<StreamEnd> problem;
};

// What walpost.pipeline.delivered_lsn says, and whether it may be written: see delivered_note.h.
struct RecordedDelivery {
  std::string pipeline;  // the row's name
  base::Lsn delivered;   // 0/0 = not noted yet
  bool writable = false;
};

struct PreflightReport {
  base::SourceFacts facts;
  std::optional<RecordedDelivery> recorded_delivery;  // absent = no row that can be read
  std::vector<PreflightStep> steps;                   // in the order looked at
  std::vector<std::string> warnings;  // nothing that stops us, but an operator should know

  // Of the first step that has one.
  const StreamEnd* problem() const;
};

enum class PreflightMode { kStopAtFirst, kAll };

// kAll goes on after a problem as long as the connection lives and the server is one we can talk
// to.
PreflightReport RunPreflight(Connection* connection, const ConnectOptions& options,
                             PreflightMode mode, Deadline deadline);

// For `run`, behind START: what `init` recorded meanwhile that keeps us from streaming. `facts`: what
// preflight has read.
std::optional<StreamEnd> LookAtRecord(Connection* connection, const ConnectOptions& options,
                                      const base::SourceFacts& facts, Deadline deadline);

// For `check`: opens the replication connection, looks at everything, and closes without START.
// StreamEnd when connecting fails.
std::variant<PreflightReport, StreamEnd> CheckSource(const ConnectOptions& options);

// Which history the server has: identity, timelines, the log's end and whether it is in recovery, and
// nothing else. StreamEnd: what could not be read.
std::variant<base::SourceFacts, StreamEnd> ReadHistory(const ConnectOptions& options);

// For `run`, while its stream stands still: the same on a connection of its own, but for what concerns
// the slot. Of a standby also that the slot is streamed from, and what `init` recorded since: everything up
// to `looked_lsn` had been replayed when it was read. StreamEnd is the first problem.
std::variant<base::SourceFacts, StreamEnd> LookAgain(const ConnectOptions& options);

}  // namespace walpost::postgres
