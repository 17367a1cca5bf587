// RowRecords - the records that rows of walpost.dead_letters are sent as; Destinations - where
// events may go.
// Thread: loop thread.   Lifetime: `schemas` must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/dead_letter.h"
#include "envelope/record.h"
#include "envelope/schema.h"
#include "outbox/topic_rules.h"
#include "pipeline/options.h"

namespace walpost::pipeline {

class RowRecords {
 public:
  // `schemas` may be null where nothing is framed.
  RowRecords(const PipelineOptions& options, envelope::SchemaTable* schemas);

  static bool HasRecord(const base::DeadLetter& row);

  // Of the row's own bytes, which must outlive it, as `headers` must. A schema it needs is looked
  // up as for any other record.
  envelope::Record Of(const base::DeadLetter& row, std::string_view topic,
                      std::vector<envelope::RecordHeader>* headers) const;

 private:
  std::uint32_t SourceOf(const std::string& source) const;

  envelope::SchemaTable* const schemas_;
  std::vector<std::string> tables_;  // of the outboxes, in their order
};

// Destinations - where events may go, by where they come from.
// Why: who writes events chooses a topic, and who decides about dead letters another: both only
//   among those that the configuration allows.
// Source: docs/security.md.
class Destinations {
 public:
  explicit Destinations(const PipelineOptions& options);

  // For events of an outbox, by its index; every greater one stands for messages.
  bool Allow(std::uint32_t table, std::string_view topic) const;

  // For events of any of them. Else says why not.
  absl::Status Check(std::string_view topic) const;

 private:
  std::vector<outbox::TopicRules> rules_;  // of the tables, then of messages
};

}  // namespace walpost::pipeline
