// PreflightRun - one pass of preflight: each step is a question and its answer.
// Why: internal to preflight*.cc; steps share what earlier ones read.
// Thread: one owner; blocking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/source_facts.h"
#include "postgres/preflight.h"

namespace walpost::postgres {

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

}  // namespace walpost::postgres
