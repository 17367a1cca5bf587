// TruncatedRow - a truncated dead letter made whole from its row: the one in the outbox table or the one that
// the dead letter keeps.
// Why: it has no record, because that did not fit, or because the row became none. The row in the table
//   may have been corrected since; or the configuration, under which the kept one is read anew; or the
//   topic's limit was raised.
// Rule: whoever may insert may give a row any id. So with the id alone a row of the table is not the one that
//   is meant. It has the transaction (column tx) of the kept row; then it comes first, whatever was corrected.
//   Where that is not known it has the dead letter's key and topic, and the kept row comes first.
// Thread: one owner; blocking.   Lifetime: `options` and `dead_letters` must outlive it.
// Errors: kNotFound (no such row, nor a kept one; or its table is no outbox any more), kFailedPrecondition (several
//   rows, or one with another topic or key, a table that does not fit its mapping, or a parked row that has
//   another topic or key now), kInvalidArgument (the row still becomes no record; says why), and
//   SqlConnection's.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dead_letter.h"
#include "operations/deadletters/dlq.h"
#include "operations/rows/row_encoder.h"
#include "outbox/kept_row.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

class TruncatedRow {
 public:
  TruncatedRow(const PipelineSettings& options, postgres::DeadLetterTable* dead_letters)
      : options_(options), dead_letters_(dead_letters) {}

  // The same with its record. Its schema is looked up when it is sent. `row` may be without what it keeps.
  absl::StatusOr<base::DeadLetter> Read(const base::DeadLetter& row);

 private:
  // `tx`: of its row; empty = not known.
  absl::StatusOr<base::DeadLetter> FromTable(const envelope::OutboxOptions& outbox,
                                             std::uint32_t source, const base::DeadLetter& row,
                                             const std::string& tx);
  absl::StatusOr<base::DeadLetter> FromTableLocked(const envelope::OutboxOptions& outbox,
                                                   std::uint32_t source,
                                                   const base::DeadLetter& row,
                                                   const std::string& tx);
  // Its bytes.
  absl::StatusOr<std::string> ReadKept(const base::DeadLetter& row);
  absl::StatusOr<base::DeadLetter> FromKept(const envelope::OutboxOptions& outbox,
                                            std::uint32_t source, const base::DeadLetter& row,
                                            const outbox::KeptRow& kept);
  absl::StatusOr<base::DeadLetter> Whole(const base::DeadLetter& row,
                                         std::span<const pgoutput::Value> values);
  absl::StatusOr<postgres::Row> Fetch(const outbox::TableOptions& table,
                                      const base::DeadLetter& row, const std::string& tx);

  const PipelineSettings& options_;
  postgres::DeadLetterTable* const dead_letters_;
  std::optional<postgres::SqlConnection> connection_;
  // Of the last row.
  postgres::Row row_;
  std::optional<RowEncoder> encoder_;
  envelope::SchemaTable schemas_;
};

}  // namespace walpost::operations
