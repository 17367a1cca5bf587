// RowFilter - which rows of the outbox tables a verb is about.
// Thread: values.
// Errors: kInvalidArgument, for the one who typed: no such table, or the table has no column for what
//   is asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operations/pipeline_settings.h"
#include "operations/rows/row_reader.h"

namespace walpost::operations {

// Empty = any.
struct RowFilter {
  std::optional<std::int64_t> from_ms;  // of created_at; included
  std::optional<std::int64_t> to_ms;    // not included
  std::vector<std::string> ids;
  std::string key;
  std::string type;
  std::string table;  // schema.table

  bool empty() const {
    return !from_ms && !to_ms && ids.empty() && key.empty() && type.empty() && table.empty();
  }

  // Whether of a row that is chosen a newer one of its key may not be.
  bool MayLeaveOutNewer() const { return to_ms || !ids.empty() || !type.empty(); }

  // SQL about `t`.
  absl::StatusOr<std::string> Where(const RowReader& reader,
                                    const outbox::TableOptions& options) const;
};

std::string NameOf(const envelope::OutboxOptions& outbox);

// By the order of the outboxes, those that a filter may find rows in.
absl::StatusOr<std::vector<std::uint32_t>> TablesOf(
    const RowFilter& filter, const std::vector<envelope::OutboxOptions>& outboxes);

// Another server with the same rows.
struct RowsElsewhere {
  std::string conninfo;            // empty = none
  std::chrono::milliseconds wait;  // until it has what the source has; else kAborted
};

// A row reader in a transaction of its own that only reads; `end`: behind all that it sees.
absl::StatusOr<RowReader> BeginReading(const RowsElsewhere& standby,
                                       const postgres::ConnectOptions& server,
                                       const envelope::OutboxOptions& outbox, std::uint32_t source,
                                       envelope::SchemaTable* schemas, base::Lsn* end);

}  // namespace walpost::operations
