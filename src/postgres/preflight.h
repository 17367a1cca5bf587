// Preflight - what must be true of the source before streaming, looked at on the replication
// connection itself.
// Why: `run` stops at the first problem, `check` shows them all; both must judge by the same code.
// Thread: any one thread; blocking.
// Errors: a problem is a StreamEnd as in replication_stream.h; its status says what, where and what
//   to type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/source_facts.h"
#include "postgres/connect.h"
#include "postgres/connection.h"

namespace walpost::postgres {

// SentColumns - which columns of a table the server sends for a publication, as SQL.
// Why: preflight, `check` and who reads rows must have the columns that the stream has; pgoutput
//   decides it. Rule: of a table that has a column list in the publication, the columns in it. Of
//   any other, however it is published, all but generated ones, and from 18 on stored generated
//   ones where the publication has publish_generated_columns = stored. A virtual one may be in no
//   list, so it is never sent.
// Source: PostgreSQL's pgoutput.c (check_and_fetch_column_list) and proto.c
//   (logicalrep_should_publish_column).

// About `a`, a row of pg_attribute of the table whose name the rows come under. `publication`: SQL
// for its OID.
std::string SentColumnSql(int server_version, std::string_view publication);

// About the same: whether a column list can name it.
std::string ListableColumnSql(int server_version);

struct PreflightStep {
  std::string name;  // server_version, identity, server, timeline, slot, slot_free, publication,
                     // tables, record
  std::optional<StreamEnd> problem;
};

// What walpost.pipeline.delivered_lsn says, and whether it may be written: see NoteDelivered.
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

// For `run`, behind START: what `init` recorded meanwhile that keeps us from streaming. `facts`:
// what preflight has read.
std::optional<StreamEnd> LookAtRecord(Connection* connection, const ConnectOptions& options,
                                      const base::SourceFacts& facts, Deadline deadline);

// For `check`: opens the replication connection, looks at everything, and closes without START.
// StreamEnd when connecting fails.
std::variant<PreflightReport, StreamEnd> CheckSource(const ConnectOptions& options);

// Which history the server has: identity, timelines, the log's end and whether it is in recovery,
// and nothing else. StreamEnd: what could not be read.
std::variant<base::SourceFacts, StreamEnd> ReadHistory(const ConnectOptions& options);

// For `run`, while its stream stands still: the same on a connection of its own, but for what
// concerns the slot. Of a standby also that the slot is streamed from, and what `init` recorded
// since: everything up to `looked_lsn` had been replayed when it was read. StreamEnd is the first
// problem.
std::variant<base::SourceFacts, StreamEnd> LookAgain(const ConnectOptions& options);

// PreflightRun - one pass of preflight: each step is a question and its answer.
// Why: internal to preflight*.cc; steps share what earlier ones read.
// Thread: one owner; blocking.

// A row of walpost.pipeline, written by `walpost init`. Absent when there is no such table or row.
struct PipelineRecord {
  std::string name;
  std::string slot;
  std::string system_identifier;
  std::string consistent_point;
  bool backfilled = true;
  std::string prefixes_missing;  // recorded, but not among ours: "'a', 'b'"
};

// True when the server's setting names `application_name` as a synchronous standby.
bool IsSynchronousStandby(std::string_view synchronous_standby_names,
                          std::string_view application_name);

class PreflightRun {
 public:
  PreflightRun(Connection* connection, const ConnectOptions& options, Deadline deadline,
               PreflightReport* report)
      : connection_(*connection), options_(options), deadline_(deadline), report_(*report) {}

  // Each returns the problem it found. In this order: later ones use what earlier ones read.
  std::optional<StreamEnd> ServerVersion();  // and the session's limits
  std::optional<StreamEnd> Identity();
  std::optional<StreamEnd> Server();
  std::optional<StreamEnd> Timeline();
  std::optional<StreamEnd> Slot();
  std::optional<StreamEnd> SlotFree();
  // From where on the next two see every edit.
  std::optional<StreamEnd> Looked();
  std::optional<StreamEnd> SameTimeline();
  std::optional<StreamEnd> Publication();
  std::optional<StreamEnd> Tables();
  std::optional<StreamEnd> Record();
  std::optional<StreamEnd> DeadLetters();
  // Not steps. Of LookAtRecord and LookAgain; and: this is the server that somebody streams from.
  std::optional<StreamEnd> RecordAgain();
  std::optional<StreamEnd> SlotStreams();

 private:
  int version() const { return connection_.server_version(); }

  const Endpoint& endpoint() const { return connection_.endpoint(); }

  Result Query(const std::string& sql) { return connection_.Query(sql, deadline_); }

  base::SourceFacts& facts() { return report_.facts; }

  std::optional<StreamEnd> Synchronous(std::string_view names, std::string_view application_name);
  std::optional<StreamEnd> ReadRecord();
  StreamEnd Forbidden(std::string_view table, std::string_view unknown) const;
  StreamEnd SlotMissing() const;
  std::optional<StreamEnd> RecordOfAnother() const;
  std::optional<StreamEnd> JudgeSlot(const Result& slot);
  Result ReadTable(const SourceTable& wanted);
  std::optional<StreamEnd> Table(const SourceTable& table);
  std::optional<StreamEnd> Partitions(const SourceTable& table, base::PublishedTable* published);
  std::optional<StreamEnd> Relatives(base::PublishedTable* published);
  std::optional<StreamEnd> TextTypes();
  std::optional<StreamEnd> NotPublished(const SourceTable& table, const Result& found);
  // "slot \"walpost\" on db:5432, database \"shop\""
  std::string SlotText() const;
  std::string PublicationText() const;

  Connection& connection_;
  const ConnectOptions& options_;
  const Deadline deadline_;
  PreflightReport& report_;
  bool all_tables_ = false;  // of the publication
  bool via_root_ = false;    // the same
  std::optional<PipelineRecord> record_;
  std::optional<StreamEnd> record_unread_;  // why it is not known whether there is one
  std::string active_pid_;                  // of the slot's present user, empty when free
  std::string active_user_text_;
};

// NoteDelivered - writes walpost.pipeline.delivered_lsn: everything before it is in Kafka.
// Why: a slot can be moved by others, and progress in Kafka may be of another history of the
//   server. What lies in the database goes back with it, so it is always of the server's own
//   history. It is what outbox.maintain and `slot recreate` go by.
// Thread: one owner; blocking, for as long as the server's limits here: 1 s for a lock, 3 s in all.
// Errors: in words, "" when there is nothing to say. Whatever fails, streaming can begin: then what
//   is noted is older, and so still true.
// Source: docs/design.md, "What the database knows".

// `connection` is the one that preflight ran on and that is to stream. Writes nothing on a standby,
// without the right, or when the note says so already.
std::string NoteDelivered(Connection* connection, const PreflightReport& report, Deadline deadline);

}  // namespace walpost::postgres
